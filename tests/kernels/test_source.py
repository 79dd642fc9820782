"""The kernel texts of each program."""

from __future__ import annotations

import pytest

from imgconv.kernels.kernel_source import KERNELS_IN_A_PROGRAM, batched_into_programs

MOST = KERNELS_IN_A_PROGRAM


@pytest.mark.parametrize("count", [0, 1, 2, MOST - 1, MOST, MOST + 1, 3 * MOST, 100])
@pytest.mark.parametrize("builds", [1, 2, 7, MOST, 64, 1000])
def test_programs_have_all_kernels_once(count: int, builds: int) -> None:
    texts = [str(number) for number in range(count)]
    programs = batched_into_programs(texts, builds)
    assert [text for batch in programs for text in batch] == texts
    assert all(1 <= len(batch) <= MOST for batch in programs)
    assert len(programs) >= min(builds, count), "a core has nothing to build"
    assert len(programs) < len(batched_into_programs(texts)) + builds, "more than equally many for each"


@pytest.mark.parametrize("builds", [1, 3, 8, 64])
def test_the_number_of_programs_tells_them(builds: int) -> None:
    """A compiled file has the binaries of programs, and which kernels they have follows from their number."""
    for count in range(1, 120):
        texts = [str(number) for number in range(count)]
        programs = batched_into_programs(texts, builds)
        assert batched_into_programs(texts, len(programs)) == programs
