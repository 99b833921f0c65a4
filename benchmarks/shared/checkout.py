"""Makes tests.support importable: a benchmark is started as a file, so that Python looks beside it alone."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
