"""Figures of the core beside their targets, as printed rows."""

NAMES = {"queue": "Queue Storage", "bus": "Service Bus"}

MB = 1_000_000
SEGMENT_BYTES = 64 * 1024 * 1024
TURN_MS_MAX = 25
SNAPSHOT_STEP_MS_MAX = 1
READY_EMPTY_MS_MAX = 50
RATIO_MIN = 0.9
TAIL_RATIO_MAX = 2
# The most messages to which a target applies, and the target.
MEMORY_MB_MAX = [(1_000_000, 90), (10_000_000, 160), (100_000_000, 512)]
READY_MS_MAX = [(1_000_000, 200), (100_000_000, 2_000)]


def target_of(table, messages):
    """The target of this many messages; None if there is none."""
    return next((target for most, target in table if messages <= most), None)


def disk_bytes_max(live_bytes):
    return 1.4 * live_bytes + 4 * SEGMENT_BYTES


class Row:
    """One figure. `is_met` is None without a target."""

    def __init__(self, what, figure, target="", is_met=None):
        self.what, self.figure, self.target, self.is_met = what, figure, target, is_met

    @classmethod
    def at_most(cls, what, value, bound, unit, figure=None):
        """A value that has to be at most the bound, if there is one."""
        figure = figure or f"{number(value)} {unit}"
        if bound is None:
            return cls(what, figure)
        return cls(what, figure, f"≤ {number(bound)} {unit}", value <= bound)

    @classmethod
    def at_least(cls, what, value, bound, figure):
        return cls(what, figure, f"≥ {number(bound)}", value >= bound)

    def verdict(self):
        return {None: "", True: "met", False: "MISSED"}[self.is_met]

    def cell(self):
        return self.figure + (", **missed**" if self.is_met is False else "")


def number(value):
    """A number as a reader wants it: whole above 100, else with three digits."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def print_rows(title, rows):
    print(f"\n{title}")
    wide = max(len(row.what) for row in rows)
    figures = max(len(row.figure) for row in rows)
    for row in rows:
        print(f"  {row.what:{wide}}  {row.figure:{figures}}  {row.target:14} {row.verdict()}".rstrip(), flush=True)
