"""The task is read by sky.Task, which holds it to SkyPilot's own schema, and its `run` by bash with torchrun replaced."""

FORMAT = "skypilot"
FOR = ""
TRAINERS = ("torchtitan", "torchft")
ENVIRONMENT = "clouds"
NEEDS = ("skypilot==0.14.1", "dstack==0.22.5")


def parser():
    from importlib.metadata import version

    return f"skypilot {version('skypilot')}"


def accepts(files, launch):
    import yaml
    from sky import Task

    from parsers_shell import started

    for name in (one for one in files if one.startswith("skypilot")):
        asked = {"HEAD": "first-node", "LIGHTHOUSE": "http://first-node:29510"}
        document = yaml.safe_load(files[name])
        given = {key: asked[key] for key in document.get("envs", {})}
        task = Task.from_yaml_config({**document, "envs": given})
        words = started(
            document["run"],
            variables={"SKYPILOT_NODE_IPS": "first-node\nsecond-node", "SKYPILOT_NODE_RANK": "0", **given},
        )
        (resources,) = task.resources
        (gpus,) = resources.accelerators.values()
        assert f"--nproc-per-node={gpus:.0f}" in words
        nodes = next(int(word.partition("=")[2]) for word in words if word.startswith("--nnodes="))
        assert nodes >= task.num_nodes
