"""What is installed is compared with what the release asks for."""

import pytest

from pilotfish.cli.checks.finding import Verdict
from pilotfish.cli.checks.installation import check_packages


@pytest.mark.parametrize("extra", ["router", "engine", "ray"])
def test_a_role_whose_main_package_is_there_needs_all_of_its_own(extra: str) -> None:
    assert "no-such-package is missing" in check_packages([f"no-such-package; extra == '{extra}'"]).found


def test_packages_in_range_are_well_and_other_extras_do_not_count() -> None:
    finding = check_packages(["pytest>=1", "no-such-package; extra == 'dev'", "no-such-package; python_version < '3'"])
    assert finding.verdict is Verdict.OK
    assert "all 1 packages" in finding.found


def test_a_missing_and_a_wrong_one_are_named() -> None:
    finding = check_packages(["no-such-package>=1", "pytest<1", "PyYAML"])
    assert finding.verdict is Verdict.PROBLEM
    assert "no-such-package is missing; pytest is " in finding.found
    assert "not <1" in finding.found
    assert "PyYAML" not in finding.found
    assert "make setup" in finding.advice
