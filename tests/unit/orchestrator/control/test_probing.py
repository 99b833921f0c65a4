from orchestrator.control.probing import Probing


def test_a_request_probes_after_so_many_tokens_of_its_own() -> None:
    probing = Probing()
    assert not probing.takes_probe(32, 31, 16, 64)
    assert probing.takes_probe(32, 32, 16, 64)


def test_requests_probe_for_each_other() -> None:
    probing = Probing()
    asked = [probing.takes_probe(32, 0, 16, 4) for _ in range(27)]
    assert [number for number, is_due in enumerate(asked) if is_due] == [8, 17, 26]


def test_a_probe_of_one_is_one_of_all() -> None:
    probing = Probing()
    assert not any(probing.takes_probe(32, 0, 16, 4) for _ in range(8))
    assert probing.takes_probe(32, 32, 16, 4)
    assert not probing.takes_probe(32, 0, 16, 4)
