"""The scripts are run by bash with torchrun replaced, and what it was handed is read by torch.distributed.run's own parser."""

FORMAT = "torchrun"
FOR = ""
TRAINERS = ("torchtitan", "torchft", "accelerate")
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0",)


def parser():
    import torch

    return f"torch.distributed.run {torch.__version__}"


def accepts(files, launch):
    from parsers_shell import parsed, started

    scripts = [name for name in files if name.startswith("torchrun")]
    for name in scripts:
        variables = {"LIGHTHOUSE": "http://first-node:29510"}
        nodes, processes, rank = parsed(started(files[name], ("first-node", "0"), variables))
        assert processes % nodes == 0
        assert 0 <= rank < nodes
