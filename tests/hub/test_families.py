"""What processors of all families save may be pushed."""

import pytest

from hf_vlm_rl.families.tiny import FAMILIES
from hf_vlm_rl.hub.leaks import check_leaks


@pytest.mark.parametrize("family", FAMILIES)
def test_no_file_of_a_native_processor_is_refused(family, policy_for, tmp_path):
    policy_for(family).processing_class.save_pretrained(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 2
    check_leaks(files, tmp_path)
