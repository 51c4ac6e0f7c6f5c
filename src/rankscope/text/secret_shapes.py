"""Shapes of the secrets that their makers mark by a prefix, a host or a form of their own.

The shapes are those of public lists: the rules of gitleaks (github.com/gitleaks/gitleaks, config/gitleaks.toml), the
plugins of detect-secrets (github.com/Yelp/detect-secrets, detect_secrets/plugins), and the pages of the makers that
neither list names. Lengths are shorter here, because a log may have cut a secret.
"""

from __future__ import annotations

from typing import NamedTuple


class SecretShape(NamedTuple):
    """The shape of the secrets of one maker."""

    maker: str
    signs: str
    """Words in small letters, one of which every such secret holds, so that other lines are not searched."""
    pattern: str
    """A regular expression, of a secret that follows neither a letter nor a digit."""


SHAPES = (
    SecretShape("Hugging Face", "hf_", r"hf_[A-Za-z0-9]{16,}"),
    SecretShape("Hugging Face, organization", "api_org_", r"api_org_[A-Za-z0-9]{16,}"),
    SecretShape("OpenAI, Anthropic and others", "sk-", r"sk-(?=[\w-]{0,80}\d)[\w-]{16,}"),
    SecretShape("OpenAI, session", "sess-", r"sess-[A-Za-z0-9]{24,}"),
    SecretShape("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{16,}"),
    SecretShape("GitHub, fine-grained", "github_pat_", r"github_pat_\w{16,}"),
    SecretShape(
        "GitLab",
        "glpat- gldt- glptt- glrt- glcbt- glagent- glsoat- glimt- glft- gloas- glffct-",
        r"gl(?:pat|dt|ptt|rt|cbt|agent|soat|imt|ft|oas|ffct)-[\w.-]{16,}",
    ),
    SecretShape("GitLab, old runner", "gr1348941", r"GR1348941[\w-]{16,}"),
    SecretShape("AWS, key id", "akia asia abia acca a3t", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}"),
    SecretShape("AWS, Bedrock", "absk", r"ABSK[A-Za-z0-9+/]{80,}={0,2}"),
    SecretShape("AWS, Bedrock for a short time", "bedrock-api-key-", r"bedrock-api-key-[\w+/=-]{16,}"),
    SecretShape("Google, API", "aiza", r"AIza[\w-]{28,}"),
    SecretShape("Google, OAuth", "ya29.", r"ya29\.[\w-]{16,}"),
    SecretShape("Google, refresh", "1//0", r"1//0[\w-]{30,}"),
    SecretShape("Google, client", "gocspx-", r"GOCSPX-[\w-]{16,}"),
    SecretShape("Azure, storage", "==", r"[A-Za-z0-9+/]{86}=="),
    SecretShape("Azure, application", "q~", r"[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    SecretShape("Slack", "xox", r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{8,}"),
    SecretShape("Slack, application", "xapp-", r"xapp-\d-[A-Za-z0-9-]{8,}"),
    SecretShape("Slack, webhook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{8,}"),
    SecretShape("Discord, webhook", "/api/webhooks/", r"(?:discord(?:app)?\.com)?/api/webhooks/\d{5,}/[\w-]{16,}"),
    SecretShape("Discord, bot", "discord", r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
    SecretShape("Teams, webhook", "webhook.office.com/", r"webhook\.office\.com/webhookb2/[\w@/-]{16,}"),
    SecretShape("Telegram, bot", ":a", r"(?:bot)?\d{5,16}:A[\w-]{34}"),
    SecretShape("npm", "npm_", r"npm_[A-Za-z0-9]{20,}"),
    SecretShape("PyPI", "pypi-ag", r"pypi-Ag[\w-]{16,}"),
    SecretShape("Docker", "dckr_", r"dckr_(?:pat|oat)_[\w-]{16,}"),
    SecretShape("Databricks", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
    SecretShape("DigitalOcean", "_v1_", r"do[opr]_v1_[a-f0-9]{32,}"),
    SecretShape("Stripe", "_test_ _live_ _prod_", r"(?:sk|rk)_(?:test|live|prod)_[A-Za-z0-9]{10,}"),
    SecretShape("Stripe, webhook", "whsec_", r"whsec_[A-Za-z0-9+/]{16,}"),
    SecretShape("SendGrid", "sg.", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    SecretShape("Mailgun", "key-", r"key-[0-9a-f]{32}"),
    SecretShape("Vault", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{20,}"),
    SecretShape("Terraform", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}"),
    SecretShape("age", "age-secret-key-1", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    SecretShape("1Password", "ops_eyj", r"ops_eyJ[A-Za-z0-9+/]{40,}={0,3}"),
    SecretShape(
        "Doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}"
    ),
    SecretShape("Weights & Biases", "wandb_v", r"wandb_v\d_\w{20,}"),
    SecretShape("Kaggle", "kgat_", r"KGAT_[A-Za-z0-9]{20,}"),
    SecretShape("Groq", "gsk_", r"gsk_[A-Za-z0-9]{20,}"),
    SecretShape("xAI", "xai-", r"xai-[A-Za-z0-9]{20,}"),
    SecretShape("Together", "tgp_v1_", r"tgp_v1_[\w-]{20,}"),
    SecretShape("Replicate", "r8_", r"r8_[A-Za-z0-9]{20,}"),
    SecretShape("Perplexity", "pplx-", r"pplx-[A-Za-z0-9]{20,}"),
    SecretShape("Fireworks", "fw_", r"fw_(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{20,}"),
    SecretShape("Cerebras", "csk-", r"csk-[a-z0-9]{20,}"),
    SecretShape("NVIDIA NGC", "nvapi-", r"nvapi-[\w-]{20,}"),
    SecretShape("Modal", "ak- as-", r"a[ks]-(?=[A-Za-z]{0,21}\d)[A-Za-z0-9]{22}(?![\w-])"),
    SecretShape("RunPod", "rpa_", r"rpa_[A-Z0-9]{20,}"),
    SecretShape("Lambda", "secret_", r"secret_[\w-]{1,60}_[0-9a-f]{32}\.[A-Za-z0-9]{16,}"),
    SecretShape("Artifactory", "akcp", r"AKCp[A-Za-z0-9]{40,}"),
    SecretShape("Artifactory, reference", "cmvmd", r"cmVmd[A-Za-z0-9]{50,}"),
    SecretShape("Atlassian", "atatt3", r"ATATT3[\w=-]{30,}"),
    SecretShape("Alibaba", "ltai", r"LTAI[A-Za-z0-9]{12,}"),
    SecretShape("Tencent", "akid", r"AKID[A-Za-z0-9]{28,}"),
    SecretShape("Yandex", "aqvn", r"AQVN[\w-]{30,}"),
    SecretShape("Grafana", "glc_ glsa_", r"gl(?:c|sa)_[\w+/=-]{20,}"),
    SecretShape("New Relic", "nrak- nrii- nrjs-", r"NR(?:AK|II|JS)-[A-Za-z0-9-]{19,}"),
    SecretShape("Sentry", "sntrys_ sntryu_", r"sntry[su]_[\w+/=-]{20,}"),
    SecretShape("Notion", "ntn_", r"ntn_[A-Za-z0-9]{20,}"),
    SecretShape("Linear", "lin_api_", r"lin_api_[A-Za-z0-9]{20,}"),
    SecretShape("Postman", "pmak-", r"PMAK-[a-f0-9]{20,}(?:-[a-f0-9]{1,40})?"),
    SecretShape("Pulumi", "pul-", r"pul-[a-f0-9]{30,}"),
    SecretShape("Prefect", "pnu_ pnb_", r"pn[ub]_[A-Za-z0-9]{20,}"),
    SecretShape("Sourcegraph", "sgp_", r"sgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{30,}"),
    SecretShape("Supabase", "sbp_", r"sbp_[a-f0-9]{30,}"),
    SecretShape("PlanetScale", "pscale_", r"pscale_(?:tkn|oauth|pw)_[\w=.-]{20,}"),
    SecretShape("Fly.io", "fo1_ fm1 fm2_", r"(?:fo1_[\w-]{30,}|fm[12][ar]?_[A-Za-z0-9+/]{60,}={0,3})"),
    SecretShape("Heroku", "hrku-", r"HRKU-[\w-]{20,}"),
    SecretShape("OpenShift", "sha256~", r"sha256~[\w-]{30,}"),
    SecretShape("Dynatrace", "dt0c01.", r"dt0c01\.[\w.]{40,}"),
    SecretShape("RubyGems", "rubygems_", r"rubygems_[a-f0-9]{30,}"),
    SecretShape("Facebook", "eaa", r"EAA[MC][A-Za-z0-9]{60,}"),
    SecretShape("a JSON Web Token, or other JSON in base64", "eyj", r"eyJ[\w+/=-]{14,}(?:\.[\w+/=-]*){0,4}"),
    SecretShape("a private key in base64", "ls0tls1crudjti", r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]*"),
)
"""One row for each kind of secret, each with an example in the tests."""
