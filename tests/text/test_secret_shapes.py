"""Each shape of a secret hides an example, which is put together here: no scanner takes it for a real one."""

from __future__ import annotations

import re
import string

import pytest

from rankscope.text.secrets import HIDDEN, MAY_HOLD, SHAPES, hide

MIXED = "Zq7Xw9Kd2Lm4Tb8Rv3Ny6Pc1" * 10
DIGITS = string.digits * 20
HEX = "0a1b2c3d4e5f6789" * 12
CAPITALS = "Q7XW9KD2LM4TB8RZ" * 6

EXAMPLES = {
    "Hugging Face": ("hf_", MIXED[:34]),
    "Hugging Face, organization": ("api_org_", MIXED[:34]),
    "OpenAI, Anthropic and others": ("sk-", "proj-", MIXED[:48]),
    "OpenAI, session": ("sess-", MIXED[:40]),
    "GitHub": ("ghp", "_", MIXED[:36]),
    "GitHub, fine-grained": ("github", "_pat_", MIXED[:22], "_", MIXED[:59]),
    "GitLab": ("glpat", "-", MIXED[:20]),
    "GitLab, old runner": ("GR13", "48941", MIXED[:20]),
    "AWS, key id": ("AK", "IA", CAPITALS[:16]),
    "AWS, Bedrock": ("AB", "SK", MIXED[:120]),
    "AWS, Bedrock for a short time": ("bedrock-api", "-key-", MIXED[:60]),
    "Google, API": ("AI", "za", MIXED[:35]),
    "Google, OAuth": ("ya29", ".", MIXED[:60]),
    "Google, refresh": ("1//", "0", MIXED[:60]),
    "Google, client": ("GOCSPX", "-", MIXED[:28]),
    "Azure, storage": (MIXED[:86], "=="),
    "Azure, application": ("abc8", "Q~", MIXED[:34]),
    "Slack": ("xoxb", "-", DIGITS[:12], "-", MIXED[:24]),
    "Slack, application": ("xapp", "-1-", CAPITALS[:11], "-", DIGITS[:12]),
    "Slack, webhook": ("hooks.slack", ".com/services/T", CAPITALS[:10], "/B", CAPITALS[:10], "/", MIXED[:24]),
    "Discord, webhook": ("discord", ".com/api/webhooks/", DIGITS[:18], "/", MIXED[:68]),
    "Discord, bot": ("discord bot ", "M", MIXED[:23], ".", MIXED[:6], ".", MIXED[:38]),
    "Teams, webhook": ("acme.webhook", ".office.com/webhookb2/", HEX[:32], "/IncomingWebhook/", HEX[:32]),
    "Telegram, bot": (DIGITS[:10], ":A", MIXED[:34]),
    "npm": ("npm", "_", MIXED[:36]),
    "PyPI": ("pypi", "-AgEIcHlwaS5vcmc", MIXED[:60]),
    "Docker": ("dckr", "_pat_", MIXED[:27]),
    "Databricks": ("da", "pi", HEX[:32]),
    "DigitalOcean": ("dop", "_v1_", HEX[:64]),
    "Stripe": ("sk", "_live_", MIXED[:24]),
    "Stripe, webhook": ("whsec", "_", MIXED[:32]),
    "SendGrid": ("SG", ".", MIXED[:22], ".", MIXED[:43]),
    "Mailgun": ("key", "-", HEX[:32]),
    "Vault": ("hvs", ".", MIXED[:90]),
    "Terraform": (MIXED[:14], ".atlas", "v1.", MIXED[:67]),
    "age": ("AGE-SECRET", "-KEY-1", CAPITALS[:58]),
    "1Password": ("ops", "_eyJ", MIXED[:240]),
    "Doppler": ("dp", ".pt.", MIXED[:43]),
    "Weights & Biases": ("wandb", "_v1_", MIXED[:77]),
    "Kaggle": ("KGAT", "_", HEX[:32]),
    "Groq": ("gsk", "_", MIXED[:52]),
    "xAI": ("xai", "-", MIXED[:80]),
    "Together": ("tgp", "_v1_", MIXED[:43]),
    "Replicate": ("r8", "_", MIXED[:37]),
    "Perplexity": ("pplx", "-", MIXED[:48]),
    "Fireworks": ("fw", "_", MIXED[:24]),
    "Cerebras": ("csk", "-", HEX[:48]),
    "NVIDIA NGC": ("nvapi", "-", MIXED[:64]),
    "Modal": ("ak", "-", MIXED[:22]),
    "RunPod": ("rpa", "_", CAPITALS[:44]),
    "Lambda": ("secret", "_name_", HEX[:32], ".", MIXED[:32]),
    "Artifactory": ("AK", "Cp", MIXED[:69]),
    "Artifactory, reference": ("cm", "Vmd", MIXED[:59]),
    "Atlassian": ("ATA", "TT3", MIXED[:186]),
    "Alibaba": ("LT", "AI", MIXED[:20]),
    "Tencent": ("AK", "ID", MIXED[:32]),
    "Yandex": ("AQ", "VN", MIXED[:36]),
    "Grafana": ("gl", "sa_", MIXED[:32], "_", HEX[:8]),
    "New Relic": ("NR", "AK-", CAPITALS[:27]),
    "Sentry": ("sn", "tryu_", HEX[:64]),
    "Notion": ("nt", "n_", DIGITS[:11], MIXED[:35]),
    "Linear": ("lin", "_api_", MIXED[:40]),
    "Postman": ("PM", "AK-", HEX[:24], "-", HEX[:34]),
    "Pulumi": ("pu", "l-", HEX[:40]),
    "Prefect": ("pn", "u_", MIXED[:36]),
    "Sourcegraph": ("sg", "p_", HEX[:40]),
    "Supabase": ("sb", "p_", HEX[:40]),
    "PlanetScale": ("pscale", "_tkn_", MIXED[:43]),
    "Fly.io": ("fm", "2_", MIXED[:120]),
    "Heroku": ("HR", "KU-", MIXED[:58]),
    "OpenShift": ("sha", "256~", MIXED[:43]),
    "Dynatrace": ("dt0", "c01.", CAPITALS[:24], ".", CAPITALS[:64]),
    "RubyGems": ("ruby", "gems_", HEX[:48]),
    "Facebook": ("EA", "AM", MIXED[:120]),
    "a JSON Web Token, or other JSON in base64": ("ey", "J", MIXED[:33], ".ey", "J", MIXED[:60], ".", MIXED[:43]),
    "a private key in base64": ("LS0tLS1", "CRUdJTi", MIXED[:200]),
}


def test_each_maker_has_an_example() -> None:
    assert set(EXAMPLES) == {row.maker for row in SHAPES}
    assert len(SHAPES) == len(EXAMPLES)


@pytest.mark.parametrize("maker", EXAMPLES)
@pytest.mark.parametrize(
    ("before", "after"), [("got ", " in step 3"), ("(", ")"), ("'", "', 2"), ("x\\n", "\\n"), ("%3D", "")]
)
def test_the_secrets_of_a_maker_are_hidden(maker: str, before: str, after: str) -> None:
    secret = "".join(EXAMPLES[maker])
    shown = hide(f"{before}{secret}{after}")
    assert HIDDEN in shown
    assert secret[-12:] not in shown
    assert shown.startswith(before) and shown.endswith(after)
    assert re.search(MAY_HOLD, secret)
