"""The report, as Markdown: medians of the rounds with minimum and maximum, and their ratios to Postrider's."""

from dataclasses import dataclass
from math import isnan
from statistics import median

from row import Row


@dataclass(frozen=True)
class _Column:
    name: str
    figure: str  # the member of Row
    decimals: int


_COLUMNS = [
    _Column("CPU ms", "cpu", 2),
    _Column("in signatures", "signatures", 1),
    _Column("accepted/s", "accepted", 0),
    _Column("delivered/s", "delivered", 0),
    _Column("KB written", "device", 1),
    _Column("flushes", "flushes", 2),
    _Column("peak MB", "memory", 0),
    _Column("load", "load", 1),
]
_RATIOS = [_Column("CPU", "cpu", 1), _Column("delivered/s", "delivered", 2), _Column("KB written", "device", 1)]


def report(head: list[str], rounds: list[list[Row]]) -> str:
    """Returns the whole report. The other systems are compared with the first one of a round."""
    figures = [["a message", *(column.name for column in _COLUMNS)]]
    ratios = [[f"against {rounds[0][0].system}", *(column.name for column in _RATIOS)]]
    for rows in zip(*rounds, strict=True):
        label = rows[0].system + (" (INVALID)" if any(row.faults for row in rows) else "")
        figures.append([label, *(_spread([getattr(row, c.figure) for row in rows], c.decimals) for c in _COLUMNS)])
        pairs = [(row, others[0]) for row, others in zip(rows, rounds, strict=True)]
        ratios.append([label, *(_spread(_quotients(pairs, c.figure), c.decimals, "×") for c in _RATIOS)])
    faults = [f"- {row.system}: {fault}" for rows in rounds for row in rows for fault in row.faults]
    blocks = [head, _markdown(figures), _markdown(ratios[:1] + ratios[2:]), faults]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _quotients(pairs: list[tuple[Row, Row]], figure: str) -> list[float]:
    """Returns ratios within one round, so that a temporary slowdown of the machine affects both figures."""
    return [getattr(one, figure) / (getattr(other, figure) or float("nan")) for one, other in pairs]


def _spread(values: list[float], decimals: int, unit: str = "") -> str:
    if any(map(isnan, values)):
        return "–"
    middle = f"{median(values):.{decimals}f}{unit}"
    low, high = f"{min(values):.{decimals}f}", f"{max(values):.{decimals}f}"
    return middle if low == high else f"{middle} ({low}–{high})"


def _markdown(lines: list[list[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in lines[0][1:])]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]
