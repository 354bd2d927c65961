"""Which step is waited for, by events that say what they are asked."""

from granet.training.run_ahead import RunAheadLimit


class Said:
    def __init__(self, log: list[tuple[str, int]]) -> None:
        self.log, self.step = log, -1

    def record(self) -> None:
        self.step = max((step for what, step in self.log if what == "record"), default=-1) + 1
        self.log.append(("record", self.step))

    def synchronize(self) -> None:
        self.log.append(("wait", self.step))


def test_the_host_waits_for_the_step_so_many_before() -> None:
    log: list[tuple[str, int]] = []
    limit = RunAheadLimit([Said(log) for _ in range(3)])
    for _ in range(7):
        limit()
    assert [step for what, step in log if what == "wait"] == [-1, -1, -1, 0, 1, 2, 3]
    assert [step for what, step in log if what == "record"] == list(range(7))
