"""The scripts are run by bash with torchrun replaced, and what it was handed is read by torch.distributed.run's own parser."""

FORMAT = "torchrun"
FOR = ""
TRAINER = "torchtitan"
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0",)


def parser():
    import torch

    return f"torch.distributed.run {torch.__version__}"


def accepts(files, launch):
    from parsers_shell import parsed, started

    scripts = [name for name in files if name.startswith("torchrun")]
    nodes, ranks = set(), []
    for name in scripts:
        of, processes, rank = parsed(started(files[name], ("first-node", "0")))
        assert processes % of == 0
        nodes.add(of)
        ranks.append(rank)
    assert len(nodes) == 1, "one process group"
    assert sorted(set(ranks)) == sorted(ranks), "every node has a rank of its own"
