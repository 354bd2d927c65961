"""Many work at once or one is alone, never both, and nobody is left out."""

import threading
import time

import pytest

from granet.studies.jobs.gate import Gate


def test_nobody_works_while_one_is_alone() -> None:
    gate = Gate()
    at_work, alone, wrong, most = set(), set(), [], 0

    def work(name: int) -> None:
        nonlocal most
        with gate.working() as step_aside:
            for _ in range(200):
                step_aside()
                at_work.add(name)
                most = max(most, len(at_work))
                wrong.extend(alone)
                time.sleep(1e-4)
                at_work.discard(name)

    def capture(name: int) -> None:
        for _ in range(20):
            with gate.alone():
                alone.add(name)
                wrong.extend(at_work | (alone - {name}))
                time.sleep(1e-3)
                wrong.extend(at_work | (alone - {name}))
                alone.discard(name)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    threads += [threading.Thread(target=capture, args=(-i,)) for i in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert not wrong
    assert most > 1


@pytest.mark.parametrize("enter", [Gate.working, Gate.alone])
def test_an_error_leaves_the_gate_open(enter) -> None:
    gate = Gate()
    with pytest.raises(KeyError), enter(gate):
        raise KeyError
    with gate.alone():
        pass
    with gate.working():
        pass
