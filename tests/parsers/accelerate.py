"""What `accelerate launch` does with its file before it starts anything, and TrainingArguments with the one beside it."""

FORMAT = "accelerate"
FOR = ""
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0", "accelerate==1.15.0", "transformers==5.24.0", "deepspeed==0.19.8")
KEYS = "accelerate-1.15.0.txt"


def parser():
    import accelerate

    return f"accelerate {accelerate.__version__}"


def accepts(files, launch):
    from pathlib import Path
    from unittest.mock import patch

    import accelerate.utils.launch as launching
    from accelerate.commands import launch as command
    from transformers import HfArgumentParser, TrainingArguments

    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    words = launch.split()
    assert words[:2] == ["accelerate", "launch"]
    args, _, _ = command._validate_launch_command(command.launch_command_parser().parse_args(words[2:]))
    args.main_process_ip = "127.0.0.1"
    with (
        patch.object(launching, "is_fp8_available", lambda: True),
        patch.object(launching, "is_port_in_use", lambda _: False),
    ):
        if args.use_deepspeed:
            args.deepspeed_fields_from_accelerate_config = ""
            args.deepspeed_multinode_launcher = "standard"
            _, environment = launching.prepare_deepspeed_cmd_env(args)
        else:
            environment = launching.prepare_multi_gpu_env(args)
    _plugins(args, environment)
    with patch.object(TrainingArguments, "__post_init__", lambda _: None):  # asks what this machine's devices can do
        HfArgumentParser(TrainingArguments).parse_json_file(files_beside(files), allow_extra_keys=False)


def files_beside(files):
    return next(name for name in files if name.endswith(".json"))


def _plugins(args, environment):
    """The mesh and the plugin that the program's Accelerator makes of the environment."""
    import os
    from unittest.mock import patch

    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin

    with patch.dict(os.environ, environment, clear=True):
        if args.use_parallelism_config:
            mesh = ParallelismConfig()
            assert args.use_deepspeed or mesh.total_size == args.num_processes, "degrees multiply to the processes"
            assert not args.use_fsdp or mesh.dp_shard_enabled or mesh.cp_enabled, "FSDP has something to shard over"
        if args.use_fsdp:
            plugin = FullyShardedDataParallelPlugin()
            assert plugin.fsdp_version == 2
            assert str(plugin.reshard_after_forward).lower() == str(args.fsdp_reshard_after_forward).lower()
            plugin.set_mixed_precision(str(args.mixed_precision).replace("no", "fp32"))
