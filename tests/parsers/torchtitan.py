"""torchtitan 0.3: its own parser imports the exported function, builds the model's configuration and checks what its trainer would."""

FORMAT = "torchtitan"
FOR = "0.3.0"
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0", "torchtitan==0.3.0", "triton==3.9.0", "torchao==0.18.0")
KEYS = "torchtitan-0.3.0.txt"


def parser() -> str:
    """Its version."""
    from importlib.metadata import version

    return f"torchtitan {version('torchtitan')}"


def accepts(files: dict[str, str], launch: str) -> None:
    """Hand the command to the parser as `torchtitan.train` does, on a machine that is said to have the accelerators."""
    import shlex
    import sys
    from pathlib import Path

    from torchtitan.components.quantization import float8, mx
    from torchtitan.config import ConfigManager

    float8.has_cuda_capability = mx.has_cuda_capability = lambda *_: True
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
        sys.modules.pop(name.removesuffix(".py"), None)
    sys.path.insert(0, "")
    sys.dont_write_bytecode = True
    try:
        config = ConfigManager().parse_args(shlex.split(launch.replace("$ISLAND", "1"))[3:])
    finally:
        sys.path.remove("")
    training, mesh = config.training, config.parallelism
    groups = config.fault_tolerance.group_size if hasattr(config, "fault_tolerance") else 1
    replicas = mesh.data_parallel_replicate_degree * mesh.data_parallel_shard_degree * groups
    assert training.global_batch_size % (training.local_batch_size * replicas) == 0
    ranks = mesh.data_parallel_shard_degree * mesh.context_parallel_degree * mesh.tensor_parallel_degree
    assert ranks % mesh.expert_parallel_degree == 0
    cut = mesh.tensor_parallel_degree * (2 * mesh.context_parallel_degree if mesh.context_parallel_degree > 1 else 1)
    assert training.seq_len % cut == 0
    stages_of(config)


def stages_of(config: object) -> None:
    """Cut the model into stages as the trainer does, for a schedule that takes as many."""
    from types import SimpleNamespace

    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
    from torchtitan.distributed.pipeline_parallel import _generate_llm_fqn_per_model_part, _get_pipeline_metadata

    mesh = config.parallelism
    if mesh.pipeline_parallel_degree == 1:
        return
    stages, *rest = _get_pipeline_metadata(
        SimpleNamespace(pp=mesh.pipeline_parallel_degree), mesh, config.model_spec.model
    )
    _generate_llm_fqn_per_model_part(stages, *rest)
    single = issubclass(get_schedule_class(mesh.pipeline_parallel_schedule), PipelineScheduleSingle)
    assert (stages == mesh.pipeline_parallel_degree) == single
