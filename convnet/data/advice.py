"""What to change when training waits for images."""

from convnet.cpus import available_cpus
from convnet.data.decoders import chosen
from convnet.data.pipeline import Pipeline
from convnet.data.sources import PixelSource

MUCH = 0.05  # of the time, spent waiting


def advice(pipeline: Pipeline, share: float) -> str:
    """One line for a run that waits for `share` of its time: what to try, the cheapest first."""
    return f"training waits for images for {share:.0%} of the time: {'; '.join(remedies(pipeline))}"


def remedies(pipeline: Pipeline) -> list[str]:
    """What may help that is not yet done."""
    found, cpus = [], available_cpus()
    if pipeline.threads < cpus:
        found.append(f"data.threads: auto would use up to {cpus}")
    if not isinstance(pipeline.source, PixelSource):
        if pipeline.transform.decoder == "pillow" == chosen("auto"):
            found.append("simplejpeg decodes JPEGs faster (pip install 'convnet[simplejpeg]')")
        if not pipeline.processes and pipeline.threads >= 4:
            found.append("data.workers: processes scales further than threads")
        found.append("`convnet prepare` makes smaller files, or with --format raw an array that needs no decoding")
    return [*found, "`convnet bench data` shows which stage is slow"]
