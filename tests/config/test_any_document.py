"""Any document along the schema, sound or not, gives problems with places or a config that plans every GPU once."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from reactor.cli.migration import differences
from reactor.config import Accepted, effective, parse
from reactor.config.schema import File
from reactor.model.config import Config
from reactor.model.gpu import Gpu, MigMode
from reactor.model.ids import GpuUuid, PciAddress
from reactor.plan import LIST_LIMIT, make_plan
from tests.config.texts import UUID

_NAMED = ["gpu", "nvidia.com/gpu", "nvidia.com/a100", "t4", "GPU", "/dev", "*", "*T4*", "*a*b", "v1", "yes", "", "é\n"]
_COUNTED = ["all", "0", "0:1", f"GPU-{UUID}", "0000:3b:00.0", "144-150", "9-7", "60s", "infinite", "-5s"]
_TEXTS = st.sampled_from([*_NAMED, *_COUNTED, "envvar", "envvar,cdi-cri"])
_JUNK: st.SearchStrategy[object] = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 200_000), st.floats(allow_nan=False, allow_infinity=False), _TEXTS,
    st.just([]), st.just({}), st.just([[None]]),
)  # fmt: skip


def _values(kind: inspect.Type) -> st.SearchStrategy[object]:
    """Values of one type of the schema, most of them sound."""
    match kind:
        case inspect.Metadata(type=inner):
            return _values(inner)
        case inspect.UnionType(types=types):
            return st.one_of([_values(member) for member in types])
        case inspect.StructType(fields=fields):
            required = {field.encode_name: _values(field.type) for field in fields if field.required}
            optional = {field.encode_name: _values(field.type) for field in fields if not field.required}
            return st.fixed_dictionaries(required, optional=optional)
        case inspect.ListType(item_type=item):
            return st.lists(_values(item), max_size=3)
        case inspect.EnumType(cls=cls):
            return st.sampled_from([member.value for member in cls])
        case inspect.LiteralType(values=words):
            return st.sampled_from(list(words))
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.one_of(st.integers(0, 10), st.integers(-3, 200_000))
        case inspect.StrType():
            return _TEXTS
        case _:
            return st.none()


def _spoil(document: object, path: list[int], junk: object) -> object:
    """The document with junk at one place, which the path leads to."""
    if isinstance(document, dict) and document and path:
        key = sorted(document)[path[0] % len(document)]
        return {**document, key: _spoil(document[key], path[1:], junk)}
    if isinstance(document, list) and document and path:
        at = path[0] % len(document)
        return [*document[:at], _spoil(document[at], path[1:], junk), *document[at + 1 :]]
    return junk


_DOCUMENTS = _values(inspect.type_info(File))
_PATHS = st.lists(st.integers(0, 20), min_size=1, max_size=6)


@given(st.one_of(_DOCUMENTS, st.builds(_spoil, _DOCUMENTS, _PATHS, _JUNK)))
@settings(max_examples=150, deadline=None)
def test_any_document_gives_a_config_or_problems_with_places(document: object) -> None:
    found = parse(json.dumps(document).encode(), path="c.yaml")
    if isinstance(found, Accepted):
        assert parse(effective(found.config).encode(), path="").config == found.config  # type: ignore[union-attr]
    else:
        assert found.problems
        assert all(problem.line and problem.column and problem.message for problem in found.problems[:100])
    for point in differences(found):
        assert "\n" not in point.render("c.yaml")


# ---------------------------------------------------------------- what is accepted plans every GPU once

_PRODUCTS = st.sampled_from(["NVIDIA A100-SXM4-40GB", "Tesla T4", "NVIDIA DGX Display", "*"])
_GPUS = st.lists(st.tuples(_PRODUCTS, st.sampled_from(MigMode), st.sampled_from([None, 0, 1])), max_size=16)
_NAMES = st.sampled_from(["gpu", "a100", "t4", "x"])
_SHARES = st.fixed_dictionaries(
    {"name": _NAMES, "replicas": st.one_of(st.integers(2, 8), st.integers(2, 100_000))},
    optional={
        "rename": _NAMES,
        "devices": st.one_of(st.just("all"), st.integers(1, 4), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
    },
)
_SOUND = st.fixed_dictionaries(
    {},
    optional={
        "flags": st.fixed_dictionaries({}, optional={"migStrategy": st.sampled_from(["none", "single", "mixed"])}),
        "resources": st.fixed_dictionaries(
            {
                "gpus": st.lists(
                    st.fixed_dictionaries({"pattern": st.sampled_from(["*", "*T4", "*A100*", "x"]), "name": _NAMES}),
                    max_size=3,
                )
            }
        ),
        "sharing": st.fixed_dictionaries(
            {
                "timeSlicing": st.fixed_dictionaries(
                    {"resources": st.lists(_SHARES, min_size=1, max_size=3, unique_by=lambda one: str(one["name"]))},
                    optional={"renameByDefault": st.booleans(), "failRequestsGreaterThanOne": st.booleans()},
                )
            }
        ),
        "select": st.fixed_dictionaries(
            {}, optional={"exclude": st.just({"indices": [0]}), "include": st.just({"products": ["*"]})}
        ),
    },
)


def _node(shapes: list[tuple[str, MigMode, int | None]]) -> list[Gpu]:
    return [
        Gpu(
            uuid=GpuUuid(f"GPU-00000000-0000-0000-0000-{index:012x}"),
            index=index,
            minor=index,
            pci=PciAddress(f"0000:{index + 1:02x}:00.0"),
            product=product,
            memory=None,
            compute=None,
            numa=numa,
            mig=mig,
            recovery=None,
            monitored=True,
        )
        for index, (product, mig, numa) in enumerate(shapes)
    ]


def _check_plan(config: Config, gpus: list[Gpu]) -> None:
    plan = make_plan(config, gpus)
    planned = [group.gpu for resource in plan.resources for group in resource.groups]
    assert sorted([*planned, *plan.unlisted]) == [gpu.uuid for gpu in gpus]
    assert all(plan.unlisted.values())
    assert all(0 <= over.largest < over.replicas or over.replicas == 0 for over in plan.oversize)
    assert all(over.bytes > LIST_LIMIT for over in plan.oversize)
    assert make_plan(config, gpus[::-1]) == plan


@given(_SOUND, _GPUS)
@settings(max_examples=150, deadline=None)
def test_any_accepted_config_plans_every_gpu_once(
    document: object, shapes: list[tuple[str, MigMode, int | None]]
) -> None:
    found = parse(json.dumps(document).encode(), path="c.yaml")
    assert isinstance(found, Accepted), found
    _check_plan(found.config, _node(shapes))


@given(_DOCUMENTS, _GPUS)
@settings(max_examples=100, deadline=None)
def test_whatever_is_accepted_plans_every_gpu_once(
    document: object, shapes: list[tuple[str, MigMode, int | None]]
) -> None:
    found = parse(json.dumps(document).encode(), path="c.yaml")
    _check_plan((found if isinstance(found, Accepted) else found.rest).config, _node(shapes))
