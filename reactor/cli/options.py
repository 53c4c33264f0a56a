"""The flags and variables that go before the config file, for every command that reads a config as the agent would."""

from __future__ import annotations

from argparse import Action
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from reactor.model.config import Setting, Source
from reactor.model.errors import Refused
from reactor.model.options import OPTIONS, Given, Kind, Option

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from reactor.cli import Parser

_METAVARS = {Kind.TEXT: "VALUE", Kind.BOOL: "BOOL", Kind.LIST: "LIST", Kind.NUMBERS: "NUMBERS"}


class _Collect(Action):
    """Keeps each text with the name that it was given under: aliases exclude each other, lists add up.

    Its help is put together when somebody asks for it: what the keys mean is said by what reads the config file, which
    takes longer to load than all else before the NVML worker can be started.
    """

    @property
    def help(self) -> str | None:
        from reactor.config import doc_of

        option = next(one for one in OPTIONS if _dest(one) == self.dest)
        variables = ", ".join(option.variables)
        return f"{doc_of(option.path).replace('%', '%%')} ({option.path}; {variables})"

    @help.setter  # noqa: A003 - the name that argparse asks for
    def help(self, text: str | None) -> None:
        """The option knows its own."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        before: tuple[tuple[str, str], ...] = getattr(namespace, self.dest) or ()
        setattr(namespace, self.dest, (*before, (option_string or "", str(values))))


def add_config_flags(parser: Parser) -> None:
    """Add a flag for each option, its help from the key that it stands for."""
    group = parser.add_argument_group("in place of what the config file says")
    for option in OPTIONS:
        group.add_argument(
            *option.flags,
            dest=_dest(option),
            action=_Collect,
            nargs="?" if option.kind is Kind.BOOL else None,
            const="true",
            metavar=_METAVARS[option.kind],
        )


def read_options(args: Namespace, environ: Mapping[str, str]) -> tuple[Setting, ...]:
    """What flags and variables say in place of the file. Refused names every fault, a line for each."""
    given = tuple(_given(args, environ))
    if not given:
        return ()
    from reactor.config import read_overrides

    settings, problems = read_overrides(given)
    if problems:
        raise Refused("\n".join(problems))
    return settings


def _given(args: Namespace, environ: Mapping[str, str]) -> Iterator[Given]:
    for option in OPTIONS:
        said: tuple[tuple[str, str], ...] = getattr(args, _dest(option)) or ()
        names = list(dict.fromkeys(name for name, _ in said))
        if len(names) > 1:
            raise Refused(f"{' and '.join(names)} are one option: give one of them")
        if names:
            yield Given(option=option, source=Source.FLAG, name=names[0], texts=tuple(text for _, text in said))
            continue
        variable = next((name for name in option.variables if name in environ), None)
        if variable is not None:
            yield Given(option=option, source=Source.VARIABLE, name=variable, texts=(environ[variable],))


def _dest(option: Option) -> str:
    return option.flags[0].removeprefix("--").replace("-", "_")
