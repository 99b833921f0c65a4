"""A service's process after its start."""

import gc
import subprocess
import sys

from pilotfish.rpc.process_memory import settle_memory

GROW = """
import sys
from pilotfish.rpc.process_memory import settle_memory

def resident_mb():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

settle_memory()
before = resident_mb()
for _ in range(3):
    blocks = []
    for _ in range(8):
        blocks += [bytearray(4_000_000), bytearray(1000)]
    small = blocks[1::2]  # each stands behind a large one
    del blocks
print(resident_mb() - before)
"""


def test_what_a_start_made_is_left_out_of_collections() -> None:
    number = gc.get_freeze_count()
    try:
        settle_memory()
        assert gc.get_freeze_count() > number
    finally:
        gc.unfreeze()


def test_large_blocks_are_given_back() -> None:
    grown = subprocess.run([sys.executable, "-c", GROW], check=True, capture_output=True, text=True).stdout
    assert float(grown) < 16
