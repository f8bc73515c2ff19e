"""How a run's processes get into a container: the words of each runtime, decided here so that a
template only has to place them; pure.

{runs} stands for the directory of runs, which the renderer knows.
"""

from __future__ import annotations

from slurmmiles.errors import BadInput
from slurmmiles.planfile import ContainerPlan
from slurmmiles.recipe import Recipe
from slurmmiles.site import Container, Site

RUNS = "{runs}"
VERBS = frozenset({"infiniband", "roce", "efa"})  # fabrics that are reached by /dev/infiniband


def container_plan(recipe: Recipe, site: Site, *, gpus: int) -> ContainerPlan | None:
    """The container of the step; None without an image. BadInput for what the runtime cannot do."""
    box = site.container
    image = recipe.slurm.image or (box.image if box else None)
    if image is None:
        return None
    if box is None:
        raise BadInput(
            f"site {site.name!r} names no container runtime for the image {image!r}",
            where="slurm.image" if recipe.slurm.image else f"site {site.name}",
            fix="add `container: {runtime: pyxis}` (or apptainer, podman, environment-edf) to a"
            f" site file that extends {site.name}",
        )
    words = {
        "pyxis": _pyxis,
        "apptainer": _apptainer,
        "podman": _podman,
        "environment-edf": _edf,
    }[box.runtime](box, site, gpus)
    return ContainerPlan(runtime=box.runtime, image=image, options=(*words, *box.options))


def step_python(recipe: Recipe, site: Site) -> str:
    """The Python that starts the agents; empty: the one that runs slurmmiles."""
    if site.container and (recipe.slurm.image or site.container.image):
        return site.container.python
    return site.python or (f"{site.venv}/bin/python" if site.venv else "")


def template_of(recipe: Recipe, site: Site) -> str:
    """The name of the script's template, without its ending."""
    if site.template:
        return site.template
    if site.container and (recipe.slurm.image or site.container.image):
        return site.container.runtime
    return "venv" if site.venv else "base"


def _mounts(box: Container) -> list[str]:
    """Each as SRC:DST[:FLAGS]; the directory of runs last."""
    return [m if ":" in m else f"{m}:{m}" for m in (*box.mounts, f"{RUNS}:{RUNS}")]


def _pyxis(box: Container, _site: Site, _gpus: int) -> tuple[str, ...]:
    """`srun --help` with pyxis: mounts are one list, separated by commas."""
    return (
        f"--container-mounts={','.join(_mounts(box))}",
        *((f"--container-workdir={box.workdir}",) if box.workdir else ()),
        *((f"--container-name={box.name}",) if box.name else ()),
    )


def _apptainer(box: Container, site: Site, gpus: int) -> tuple[str, ...]:
    """apptainer-exec(1): --nv brings the host's driver; --pwd is the working directory."""
    _refuse_name(box, site)
    return (
        *(("--nv",) if gpus else ()),
        *(f"--bind={mount}" for mount in _mounts(box)),
        *((f"--pwd={box.workdir}",) if box.workdir else ()),
    )


def _podman(box: Container, site: Site, gpus: int) -> tuple[str, ...]:
    """podman-run(1): the host's network, shared memory, limits and environment, since the nodes of
    a run are one cluster.

    --cgroups=disabled leaves the processes in the cgroup of Slurm's step, which ends them.
    """
    _refuse_name(box, site)
    verbs = gpus and site.fabric in VERBS
    return (
        *("--rm", "--network=host", "--ipc=host", "--env-host", "--ulimit=host"),
        "--cgroups=disabled",
        *(("--device=nvidia.com/gpu=all",) if gpus else ()),
        *(("--device=/dev/infiniband",) if verbs else ()),
        *(f"--volume={mount}" for mount in _mounts(box)),
        *((f"--workdir={box.workdir}",) if box.workdir else ()),
    )


def _edf(box: Container, site: Site, _gpus: int) -> tuple[str, ...]:
    """CSCS Container Engine: mounts and working directory are keys of the EDF file itself."""
    _refuse_name(box, site)
    for key, value in (("mounts", box.mounts), ("workdir", box.workdir)):
        if value:
            raise BadInput(
                f"container.{key} cannot be given for environment-edf",
                where=f"site {site.name}, container.{key}",
                fix=f"write `{key}` into the EDF file, with the directory of runs among its mounts",
            )
    return ()


def _refuse_name(box: Container, site: Site) -> None:
    if box.name:
        raise BadInput(
            f"{box.runtime} has no container that stays on the node",
            where=f"site {site.name}, container.name",
            fix="remove it, or use pyxis",
        )
