"""The real sbatch reads the script's options: it says that no controller answers once they are read. The script itself is run by bash
with srun replaced, and what torchrun is handed is read by torch.distributed.run's own parser."""

FORMAT = "slurm"
FOR = ""
TRAINERS = ("torchtitan", "torchft", "megatron")
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0",)
DEBS = ("slurm-client", "slurm-wlm-basic-plugins", "libmunge2")
CONFIGURATION = """ClusterName=none
SlurmctldHost=localhost
AuthType=auth/none
GresTypes=gpu
MessageTimeout=1
TCPTimeout=1
PluginDir={plugins}
"""
ANSWERED = "Unable to contact slurm controller"


def sbatch(*arguments):
    import os
    import subprocess
    from pathlib import Path

    root = Path(os.environ["DEBS"])
    libraries = next(root.glob("usr/lib/*/slurm-wlm"))
    configuration = Path("slurm.conf").absolute()
    configuration.write_text(CONFIGURATION.format(plugins=libraries), encoding="utf-8")
    paths = os.pathsep.join((str(libraries), str(libraries.parent)))
    environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(configuration), "LD_LIBRARY_PATH": paths}
    command = [str(root / "usr" / "bin" / "sbatch"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def parser():
    return sbatch("--version").stdout.strip()


def accepts(files, launch):
    from pathlib import Path

    from parsers_shell import parsed, started

    for name in (one for one in files if one.startswith("slurm")):
        Path(name).write_text(files[name], encoding="utf-8")
        said = sbatch("--test-only", name).stderr
        assert ANSWERED in said, said
        options = dict(
            line.removeprefix("#SBATCH --").partition("=")[::2]
            for line in files[name].splitlines()
            if "#SBATCH" in line
        )
        variables = {
            "SLURM_NODEID": "0",
            "SLURM_JOB_NODELIST": "first-node",
            "HEAD": "first-node",
            "LIGHTHOUSE": "http://first-node:29510",
        }
        nodes, processes, _ = parsed(started(files[name], variables=variables))
        assert nodes >= int(options["nodes"])
        assert processes == nodes * int(options["gpus-per-node"])
