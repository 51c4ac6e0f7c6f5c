"""Differences of the models of ranks that should hold the same one: names, shapes, types, wrappers, placements.

Stages of a pipeline hold different parameters by design. Ranks are compared if they share meshes or groups of wrappers;
without any, if the process groups place them in one stage; else if they have the same names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import polars as pl

from rankscope.analysis.model import Mesh
from rankscope.features.model.model import ModelDifference

ASPECTS = ("shape", "dtype", "requires_grad", "kind", "wrapper", "placements")
"""Values of a parameter that peers share; `kind` is that of its device."""
MOST_UNLIKE = 0.2
"""Largest share of parameters in which ranks differ that are peers only by their names."""
MOST_DIFFERING = 4096
"""Most parameters whose differences are read; the count tells that more differ."""


def few_of(count: int) -> int:
    """Most ranks of `count` that are the odd ones: a quarter, and of three or more at least one."""
    return max(1, count // 4) if count > 2 else 0


def with_stages(parameters: pl.DataFrame, mesh: Mesh | None) -> pl.DataFrame:
    """The rows with the columns `stage`, a number that peers share, and `sure`, whether a mesh or a group tells it."""
    if parameters["peers"].is_not_null().any():
        alone = -1 - pl.col("rank")
        return parameters.with_columns(stage=pl.coalesce("peers", alone).cast(pl.Int64), sure=pl.lit(value=True))
    known = mesh is not None and not any(dimension.name.startswith("dim") for dimension in mesh.dimensions)
    if mesh is not None and known:
        places = mesh.along("pp") or dict.fromkeys(mesh.places, 0)
        ranks = parameters["rank"].unique().to_list()
        stages = pl.DataFrame(
            {"rank": ranks, "stage": [places.get(rank, -1 - rank) for rank in ranks]},
            {"rank": pl.Int32, "stage": pl.Int64},
        )
        return parameters.join(stages, on="rank", maintain_order="left").with_columns(sure=pl.lit(value=True))
    names = parameters.group_by("rank", maintain_order=True).agg(
        names=pl.col("name").cast(pl.String).sort().hash().sum()
    )
    names = names.with_columns(stage=pl.col("names").rank("dense").cast(pl.Int64))
    stages = names.drop("names")
    return parameters.join(stages, on="rank", maintain_order="left").with_columns(sure=pl.lit(value=False))


def find_differences(rows: pl.DataFrame) -> list[ModelDifference]:
    """The differences between peers in rows of `with_stages`, names first."""
    rows = rows.with_columns(kind=pl.col("device").cast(pl.String).str.split(":").list.first())
    differences = [*_names(rows)]
    for aspect in ASPECTS:
        differences += _values(rows, aspect)
    out: dict[tuple[object, ...], ModelDifference] = {}
    for difference in differences:
        key = difference.aspect, difference.odd, difference.peers
        known = out.get(key)
        out[key] = difference if known is None else known._replace(parameters=known.parameters + 1)
    return _settled(list(out.values()), rows)


def _settled(differences: list[ModelDifference], rows: pl.DataFrame) -> list[ModelDifference]:
    """The differences, sure where all ranks have the same names and nearly all else is equal.

    Stages of a pipeline may have the same names: then most of their parameters differ, or all are frozen in one.
    """
    if rows["stage"].n_unique() > 1:
        return differences
    most = MOST_UNLIKE * rows["name"].n_unique()
    differing = Counter[tuple[int, ...]]()
    for difference in differences:
        differing[difference.odd] += difference.parameters
    return [
        difference._replace(sure=difference.sure or differing[difference.odd] <= most) for difference in differences
    ]


def _names(rows: pl.DataFrame) -> Iterator[ModelDifference]:
    """Names that few peers lack, or that few have alone. Where many ranks have names of their own (experts), none."""
    for _, part in rows.group_by("stage", maintain_order=True):
        ranks = sorted(part["rank"].unique().to_list())
        if len(ranks) < 2:
            continue
        holders = part.group_by("name", maintain_order=True).agg("rank", "file", "line", pl.col("sure").first())
        holders = holders.filter(pl.col("rank").list.len() < len(ranks))
        few, extras = few_of(len(ranks)), set[int]()
        seldom = [row for row in holders.iter_rows(named=True) if 2 * len(row["rank"]) <= len(ranks)]
        extras.update(rank for row in seldom for rank in row["rank"])
        for row in holders.head(MOST_DIFFERING).iter_rows(named=True):
            have = tuple(sorted(row["rank"]))
            lack = tuple(rank for rank in ranks if rank not in set(have))
            places = ((row["rank"][0], row["file"][0], row["line"][0]),)
            name, sure = row["name"], row["sure"]
            if 2 * len(have) > len(ranks) and len(lack) <= few:
                yield ModelDifference("missing", lack, have, True, sure, name, 1, "", "", places)
            elif len(extras) <= max(few, 1) and len(have) <= max(few, 1):
                yield ModelDifference("extra", have, lack, len(ranks) > 2, sure, name, 1, "", "", places)


def _values(rows: pl.DataFrame, aspect: str) -> Iterator[ModelDifference]:
    """Parameters whose value differs between peers."""
    key = ["stage", "name"]
    split = (
        rows.group_by(key, maintain_order=True)
        .agg(pl.col(aspect).n_unique().alias("values"))
        .filter(pl.col("values") > 1)
    )
    part = rows.join(split.head(MOST_DIFFERING).select(key), on=key, how="semi", maintain_order="left")
    sides = part.group_by(*key, aspect, maintain_order=True).agg("rank", pl.col("file", "line", "sure").first())
    several: dict[tuple[int, str], list[dict[str, object]]] = defaultdict(list)
    for row in sides.iter_rows(named=True):
        several[row["stage"], row["name"]].append(row)
    for (_, name), values in several.items():
        found = _difference(aspect, name, values)
        if found is not None:
            yield found


def _difference(aspect: str, name: str, values: list[dict[str, object]]) -> ModelDifference | None:
    """The difference of one parameter: its most frequent value, and the ranks that have another."""
    sides = sorted(values, key=lambda row: (-len(_ranks(row)), _ranks(row)))
    first, second = sides[0], sides[1]
    odd = tuple(sorted(rank for row in sides[1:] for rank in _ranks(row)))
    peers = tuple(sorted(_ranks(first)))
    accused = len(odd) < len(peers) and len(odd) <= few_of(len(odd) + len(peers))
    places = tuple((_ranks(row)[0], int(str(row["file"])), int(str(row["line"]))) for row in (second, first))
    texts = [_text(aspect, row[aspect]) for row in (second, first)]
    return ModelDifference(aspect, odd, peers, accused, bool(first["sure"]), name, 1, texts[0], texts[1], places)


def _ranks(row: dict[str, object]) -> list[int]:
    ranks = row["rank"]
    return ranks if isinstance(ranks, list) else []


def _text(aspect: str, value: object) -> str:
    """A value in words."""
    if aspect == "requires_grad":
        return "trained" if value else "frozen"
    if aspect == "wrapper":
        return str(value) or "none"
    if aspect == "placements":
        return str(value) or "a plain tensor"
    return str(value).replace(" ", "")
