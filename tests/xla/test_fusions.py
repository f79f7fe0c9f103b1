"""Which results XLA puts in memory, read from a program that it has optimized."""

from __future__ import annotations

from memopt.xla.fusions import Kernels, find_kernels

PROGRAM = """\
HloModule step, is_scheduled=true

%scale_and_add (param_0: f32[8,8], param_1: f32[]) -> f32[8,8] {
  %param_0 = f32[8,8]{1,0} parameter(0)
  %param_1 = f32[] parameter(1)
  %b = f32[8,8]{1,0} broadcast(%param_1), dimensions={}, metadata={op_name="scale"}
  %scaled = f32[8,8]{1,0} multiply(%param_0, %b), metadata={op_type="Mul" op_name="scale"}
  ROOT %sum = f32[8,8]{1,0} add(%scaled, %param_0), metadata={op_type="AddV2" op_name="sum"}
}

%scale_alone (param_0.1: f32[8,8], param_1.1: f32[]) -> f32[8,8] {
  %param_0.1 = f32[8,8]{1,0} parameter(0)
  %param_1.1 = f32[] parameter(1)
  %b.1 = f32[8,8]{1,0} broadcast(%param_1.1), dimensions={}
  ROOT %scaled.1 = f32[8,8]{1,0} multiply(%param_0.1, %b.1), metadata={op_name="scale"}
}

%erfc (param_0.2: f32[8,8]) -> f32[8,8] {
  %param_0.2 = f32[8,8]{1,0} parameter(0)
  %square = f32[8,8]{1,0} multiply(%param_0.2, %param_0.2), metadata={op_name="erfc"}
  %negated = f32[8,8]{1,0} negate(%square), metadata={op_name="erfc"}
  ROOT %exp = f32[8,8]{1,0} exponential(%negated), metadata={op_name="erfc;inner/erfc"}
}

ENTRY %step (x: f32[8,8], y: f32[]) -> (f32[8,8], f32[8,8]) {
  %x = f32[8,8]{1,0} parameter(0), metadata={op_name="given"}
  %y = f32[] parameter(1)
  %product = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, metadata={op_name="product"}
  %fusion.1 = f32[8,8]{1,0} fusion(%product, %y), kind=kLoop, calls=%scale_and_add
  %fusion.2 = f32[8,8]{1,0} fusion(%product, %y), kind=kLoop, calls=%scale_alone
  %fusion.3 = f32[8,8]{1,0} fusion(%fusion.2), kind=kLoop, calls=%erfc, metadata={op_name="erfc"}
  ROOT %results = (f32[8,8]{1,0}, /*index=1*/f32[8,8]{1,0}) tuple(%fusion.1, %fusion.3)
}
"""


def test_what_ends_a_kernel_is_in_memory() -> None:
    """Not what a kernel computes for itself, though another one puts it there."""
    stored = find_kernels(PROGRAM.splitlines(keepends=True)).stored
    assert stored == {"product", "sum", "erfc", "inner/erfc"}


def test_parts_of_one_operation_are_no_results() -> None:
    """What an operation is made of is read by the operation itself."""
    stored = find_kernels(PROGRAM.replace('"scale"', '"sum"').splitlines()).stored
    assert "sum" in stored


def test_another_layout_of_a_result_is_no_computation() -> None:
    """What a kernel reads stays where it is, though the kernel copies its own part of it."""
    moved = """\
%moved_and_added (param_0.3: f32[8,8]) -> f32[8,8] {
  %param_0.3 = f32[8,8]{1,0} parameter(0)
  %moved = f32[8,8]{0,1} copy(%param_0.3), metadata={op_name="product"}
  ROOT %twice = f32[8,8]{0,1} add(%moved, %moved), metadata={op_name="twice"}
}
"""
    program = PROGRAM.replace("ENTRY", moved + "ENTRY")
    assert "product" in find_kernels(program.splitlines()).stored


def test_what_a_library_adds_up_is_known() -> None:
    """Not what XLA's own kernels do."""
    summed = """\
%adds (param_0.4: f32[8,8], param_1.4: f32[]) -> f32[8] {
  %param_0.4 = f32[8,8]{1,0} parameter(0)
  %param_1.4 = f32[] parameter(1)
  %twice.1 = f32[8,8]{1,0} add(%param_0.4, %param_0.4), metadata={op_name="twice"}
  ROOT %r = f32[8]{0} reduce(%twice.1, %param_1.4), dimensions={1}, metadata={op_name="total"}
}

"""
    call = "  %adds.1 = f32[8]{0} fusion(%x, %y), kind=kCustom, calls=%adds"
    of_library = call + ', backend_config={"fusion_config":{"kind":"__ynn_fusion"}}\n'
    for line, found in ((of_library, {"total"}), (call + "\n", set())):
        program = PROGRAM.replace("ENTRY", summed + "ENTRY")
        program = program.replace("  %product = ", line + "  %product = ")
        assert find_kernels(program.splitlines()).library_sums == found


def test_of_no_program_nothing_is_known() -> None:
    assert find_kernels([]) == Kernels()
    assert find_kernels(["HloModule empty", "", "}"]) == Kernels()
