"""torchtitan 0.2: its own parser reads the exported TOML, and its mesh checks the degrees."""

FORMAT = "torchtitan"
FOR = "0.2.2"
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0", "torchtitan==0.3.0", "triton==3.9.0")
ALONE = ("torchtitan==0.2.2",)
KEYS = "torchtitan-0.2.2.txt"


def parser() -> str:
    """Its version."""
    from importlib.metadata import version

    return f"torchtitan {version('torchtitan')}"


def accepts(files: dict[str, str], launch: str) -> None:
    """Hand the command to the parser as `torchtitan.train` does, then the degrees to its mesh."""
    import math
    import shlex
    from pathlib import Path

    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims

    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    config = ConfigManager().parse_args(shlex.split(launch.replace("$ISLAND", "1"))[3:])
    mesh, training = config.parallelism, config.training
    degrees = {
        "dp_replicate": mesh.data_parallel_replicate_degree,
        "dp_shard": mesh.data_parallel_shard_degree,
        "cp": mesh.context_parallel_degree,
        "tp": mesh.tensor_parallel_degree,
        "pp": mesh.pipeline_parallel_degree,
    }
    world = math.prod(degrees.values())
    ParallelDims(**degrees, ep=mesh.expert_parallel_degree, etp=mesh.expert_tensor_parallel_degree, world_size=world)
    ft = config.fault_tolerance
    replicas = degrees["dp_replicate"] * degrees["dp_shard"] * (ft.group_size if ft.enable else 1)
    assert training.global_batch_size % (training.local_batch_size * replicas) == 0
    assert config.model.flavor in flavors(config.model.name)


def flavors(name: str) -> object:
    """The flavors of a model."""
    from torchtitan.protocols.train_spec import get_train_spec

    return get_train_spec(name).model_args
