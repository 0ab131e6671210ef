"""The task is read by dstack's own parser of run configurations, and its commands by bash with torchrun replaced."""

FORMAT = "dstack"
FOR = ""
TRAINERS = ("torchtitan", "torchft")
ENVIRONMENT = "clouds"
NEEDS = ("skypilot==0.14.1", "dstack==0.22.5")


def parser():
    from importlib.metadata import version

    return f"dstack {version('dstack')}"


def accepts(files, launch):
    import yaml
    from dstack._internal.core.models.configurations import parse_run_configuration

    from parsers_shell import started

    for name in (one for one in files if one.startswith("dstack")):
        task = parse_run_configuration(yaml.safe_load(files[name]))
        variables = {"DSTACK_MASTER_NODE_IP": "first-node", "DSTACK_NODE_RANK": "0", "HEAD": "first-node"}
        words = started("\n".join(task.commands), variables={**variables, "LIGHTHOUSE": "http://first-node:29510"})
        assert f"--nproc-per-node={task.resources.gpu.count.min}" in words
        nodes = next(int(word.partition("=")[2]) for word in words if word.startswith("--nnodes="))
        assert nodes >= task.nodes
        assert {mapping.local_path for mapping in task.files} <= set(files)
