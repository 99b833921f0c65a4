from orchestrator.control.probing import Probing, longer_interval_tokens


def takes_probe_or_decodes(probing: Probing) -> bool:
    """One of four."""
    is_due = probing.takes_probe(32, 0, 4)
    if not is_due:
        probing.count_plain_tokens(16)
    return is_due


def test_a_request_probes_after_so_many_tokens_of_its_own() -> None:
    probing = Probing()
    assert not probing.takes_probe(32, 31, 64)
    assert probing.takes_probe(32, 32, 64)


def test_requests_probe_for_each_other() -> None:
    probing = Probing()
    asked = [takes_probe_or_decodes(probing) for _ in range(27)]
    assert [number for number, is_due in enumerate(asked) if is_due] == [8, 17, 26]


def test_a_probe_of_one_is_one_of_all() -> None:
    probing = Probing()
    assert not any(takes_probe_or_decodes(probing) for _ in range(8))
    assert probing.takes_probe(32, 32, 4)
    assert not takes_probe_or_decodes(probing)


def test_an_interval_grows_to_a_bound_and_never_shrinks() -> None:
    assert [longer_interval_tokens(tokens) for tokens in (32, 256, 512)] == [64, 512, 512]
    assert [longer_interval_tokens(tokens, 128) for tokens in (32, 64, 128, 512)] == [64, 128, 128, 512]
