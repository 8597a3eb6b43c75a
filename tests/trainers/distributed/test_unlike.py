"""Two ranks: decoders that differ from stock where rows share do not share, as in one process."""

import pytest

from tests.conformance.test_any_decoder import JAMBA, directory  # noqa: F401 (a fixture)

from .launch import on_two_ranks

pytestmark = [pytest.mark.trl, pytest.mark.slow]


@pytest.mark.parametrize(("decoder", "settings"), [("jamba", JAMBA), ("bloom", {})])
def test_each_rank_compares_its_decoder_with_stock(decoder, settings, directory):  # noqa: F811
    on_two_ranks("tests.trainers.distributed.unlike", directory(decoder, settings), "whole")


def test_weights_that_were_spread_before_a_comparison_do_not_share(checkpoint):
    on_two_ranks("tests.trainers.distributed.unlike", checkpoint("internvl"), "spread")
