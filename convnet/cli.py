"""The command line: `convnet COMMAND ...`.

Exit status: 0; 1 for a fault that the user can mend; 2 for a wrong config or wrong usage; 128 + a signal's number.
"""

import argparse
import logging
import math
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from convnet import __version__
from convnet.config import ConfigError, describe_layers, describe_options, leaves, load_config
from convnet.console import Console, json_line, silence
from convnet.data import DataError
from convnet.device import HELP, open_device, open_planner
from convnet.errors import UserError, out_of_memory, reason
from convnet.parallel.world import from_environment
from convnet.run import Run

Args = argparse.Namespace
Command = Callable[[Args, Console], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    args, console = parse(argv), Console()
    if args.run not in ON_RANKS and not _at_the_first(args.words[0]):
        return 0
    logging.getLogger("convnet").addHandler(console)
    try:
        return args.run(args, console)
    except BrokenPipeError:  # the reader of our output left: `convnet ... | head`
        silence(sys.stdout)
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if (told := explained(error)) is None:
            raise
        return _fail(*told)
    finally:
        logging.getLogger("convnet").removeHandler(console)


def explained(error: BaseException) -> tuple[str, int] | None:
    """The message of a fault that the user can mend, and the exit status; None: only a traceback explains it."""
    if isinstance(error, ConfigError):
        return str(error), 2
    if isinstance(error, UserError | DataError | OSError):
        return f"error: {reason(error)}", 1
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if out_of_memory(error):
        return f"error: out of memory ({error}); a smaller train.batch_size or a larger train.accumulate helps", 1
    return None


def parse(argv: Sequence[str] | None = None) -> Args:
    """The arguments; `overrides` may stand among the options."""
    parser, words = make_parser(), sys.argv[1:] if argv is None else argv
    args, rest = parser.parse_known_args(_apart(words))
    args.words = list(words)
    if not hasattr(args, "overrides"):
        args.overrides, unknown = [], rest
    else:
        more = [word for word in rest if "=" in word and not word.startswith("-")]
        args.overrides = [*args.overrides, *more]
        unknown = [word for word in rest if word not in args.overrides]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    for word in args.overrides:
        if "=" not in word:
            parser.error(f"unrecognized argument '{word}'; an override is key=value, such as solver.lr=0.02")
    return args


def _apart(argv: Sequence[str]) -> list[str]:
    """`--resume` and the word behind it, where that is an override or a config file and not the folder of a run."""
    pairs = pairwise([*argv, ""])
    return [f"{word}=" if word == "--resume" and _no_run(following) else word for word, following in pairs]


def _no_run(word: str) -> bool:
    return not os.path.isdir(word) and ("=" in word or word.endswith((".yaml", ".yml")) or os.path.isfile(word))


def make_parser() -> argparse.ArgumentParser:
    """All commands."""
    parser = argparse.ArgumentParser("convnet", description="Train convolutional networks from one YAML file.")
    parser.add_argument("--version", action="version", version=f"convnet {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(run: Command, name: str, doc: str) -> argparse.ArgumentParser:
        return _command(commands, run, name, doc)

    _train_options(command(_train, "train", "train a network, or continue a run"))
    _eval_options(command(_eval, "eval", "top-1, top-k, loss and confusions of a trained network"))
    _predict_options(command(_predict, "predict", "the likeliest classes of images"))
    _show_options(command(_show, "show", "a picture of a run: learning curve, filters, predictions"))
    _summary_options(command(_summary, "summary", "layers, parameters, multiply-adds and memory of a network"))
    _prepare_options(commands.add_parser("prepare", help="a dataset, made ready for training"))
    check = command(_check_data, "check-data", "decode every image; statistics of the training images")
    _check_data_options(check)
    _plot_options(commands.add_parser("plot", help="pictures of what goes into a network"))
    layers = command(_layers, "layers", "every layer type, or all options of one")
    layers.add_argument("name", nargs="?", metavar="TYPE", help="a layer type, such as conv")
    sections = command(_options, "options", "every section of a config file, or all options of one")
    sections.add_argument("section", nargs="?", metavar="SECTION", help="a section, such as data")
    _config_options(
        command(_check_grads, "check-grads", "compare all gradients with differences, in float64 on the CPU")
    )
    _import_options(commands.add_parser("import", help="weights or networks of other tools"))
    _convert_options(command(_convert, "convert", "a new run from a trained network, with some layers made freer"))
    _export_options(command(_export, "export", "a trained network for other tools"))
    _bench_options(commands.add_parser("bench", help="how fast parts of training are, and what limits them"))
    command(_doctor, "doctor", "what works on this machine, what is missing, and how to get it")
    return parser


def _command(commands: Any, run: Command, name: str, doc: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=doc, description=doc[0].upper() + doc[1:] + ".")
    made.set_defaults(run=run)
    return made


def _config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CFG", help="config file")
    _override_option(parser)


def _override_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="KEY=VALUE", help="options in place of the file's: solver.lr=0.02"
    )


def _device_option(parser: argparse.ArgumentParser, more: str = "") -> None:
    parser.add_argument("--device", default="auto", metavar="DEVICE", help=HELP + more)


def _gpus_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="GPUS", help="a process for each: how many, such as 2, or which, such as 0,2")


def _train_options(parser: argparse.ArgumentParser) -> None:
    _config_options(parser)
    parser.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="RUN",
        help="continue the run in this folder; default: the config's last",
    )
    _device_option(parser)
    _gpus_option(parser)
    parser.add_argument("--explain", action="store_true", help="print how each step is computed")


def _model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="RUN", help="run folder, or the folder of a checkpoint")
    parser.add_argument("--best", action="store_true", help="the run's best checkpoint instead of its last")
    _device_option(parser)


def _eval_options(parser: argparse.ArgumentParser) -> None:
    _model_options(parser)
    _override_option(parser)
    parser.add_argument(
        "--views",
        type=int,
        choices=(1, 9, 10),
        default=1,
        help="10: corners and centre, plain and mirrored; 9: a grid of 3x3 places",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _gpus_option(parser)


def _predict_options(parser: argparse.ArgumentParser) -> None:
    from convnet.predict import FORMATS

    _model_options(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="images, or folders of images")
    parser.add_argument("--top", type=int, default=3, metavar="K", help="classes shown of each image (default: 3)")
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")


def _show_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="a PNG, JPEG, TIFF, PDF, SVG or EPS; default: RUN/overview.png"
    )
    _device_option(parser)


def _plot_options(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(metavar="KIND", required=True)
    samples = _command(kinds, _plot_samples, "samples", "training images as the network gets them, under their labels")
    _config_options(samples)
    samples.add_argument(
        "-o", "--output", metavar="FILE", default="samples.png", help="a PNG, JPEG, PDF, ...; default: samples.png"
    )
    samples.add_argument("--count", type=int, default=32, metavar="N", help="images (default: 32)")
    samples.add_argument("--epoch", type=int, default=0, metavar="E", help="counted from 0 (default: 0)")
    _device_option(samples)


def _summary_options(parser: argparse.ArgumentParser) -> None:
    _config_options(parser)
    _device_option(parser, "; or an architecture to plan for, such as sm_90")
    parser.add_argument("--explain", action="store_true", help="print how each step is computed, and where it lies")
    parser.add_argument("--world", type=int, default=1, metavar="N", help="of N ranks, each with such a device")


def _convert_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="RUN", help="run folder, or the folder of a checkpoint")
    parser.add_argument("--best", action="store_true", help="the run's best checkpoint instead of its last")
    parser.add_argument("--local", nargs="+", default=[], metavar="LAYER", help="convolutions to make local layers of")
    parser.add_argument("--unshare", nargs="+", default=[], metavar="LAYER", help="layers to give weights of their own")
    parser.add_argument("-o", "--output", required=True, metavar="RUN2", help="folder of the new run")


def _prepare_options(parser: argparse.ArgumentParser) -> None:
    from convnet.data.prepare import command

    kinds = parser.add_subparsers(metavar="KIND", required=True)
    command.imagenet_options(_command(kinds, command.prepare_imagenet, "imagenet", "the archives of ILSVRC2012"))
    command.folder_options(_command(kinds, command.prepare_folder, "folder", "class folders of images"))


def _check_data_options(parser: argparse.ArgumentParser) -> None:
    _config_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="of the statistics; default: beside the training images")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes; default: one for each CPU")


def _import_options(parser: argparse.ArgumentParser) -> None:
    from convnet.formats.torchvision import ARCHITECTURES

    kinds = parser.add_subparsers(metavar="KIND", required=True)
    weights = _command(kinds, _import_torchvision, "torchvision", "published weights, as a run")
    weights.add_argument("weights", metavar="FILE", help="safetensors, or a PyTorch file (.pth)")
    weights.add_argument("--arch", required=True, choices=ARCHITECTURES, help="torchvision's name of the network")
    weights.add_argument("-o", "--output", metavar="RUN", help="run folder; default: as the config says")
    weights.add_argument("--config", metavar="CFG", help="default: the network's in configs/imagenet")
    weights.add_argument("--classes", metavar="FILE", help="class names, one a line; default: the folders of the data")
    _override_option(weights)
    network = _command(kinds, _import_cuda_convnet2, "cuda-convnet2", "a network of cuda-convnet or cuda-convnet2")
    network.add_argument("layers", metavar="LAYERS.cfg", help="layer definitions")
    network.add_argument("params", metavar="PARAMS.cfg", help="layer parameters")
    network.add_argument("-o", "--output", required=True, metavar="CFG", help="config file to write")
    network.add_argument("--size", type=int, default=224, help="side of the images, pixels (default: 224)")
    network.add_argument(
        "--data", default="data/imagenet", metavar="DIR", help="folder of images (default: data/imagenet)"
    )
    network.add_argument("--epochs", type=int, default=90, help="passes over the training set (default: 90)")


def _export_options(parser: argparse.ArgumentParser) -> None:
    from convnet.formats.export import FORMATS
    from convnet.formats.torchvision import ARCHITECTURES

    parser.add_argument("model", metavar="RUN", help="run folder, or the folder of a checkpoint")
    parser.add_argument("--best", action="store_true", help="the run's best checkpoint instead of its last")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")
    parser.add_argument("--format", choices=FORMATS, help="default: as FILE ends")
    parser.add_argument("--names", choices=("convnet", "torchvision"), default="convnet", help="of the tensors")
    parser.add_argument("--arch", choices=ARCHITECTURES, help="torchvision's name of the network, for its names")


def _bench_options(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(metavar="KIND", required=True)
    data = _command(kinds, _bench_data, "data", "images/s from the files to the network's input, by stages")
    _config_options(data)
    data.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each stage (default: 3)")
    _device_option(data)
    scaling = _command(kinds, _bench_scaling, "scaling", "training steps on more and more GPUs")
    _config_options(scaling)
    _device_option(scaling)
    scaling.add_argument("--gpus", metavar="N,N", help="numbers of ranks to measure; default: 1, and all there are")
    scaling.add_argument(
        "--batch", metavar="N,N", help="images of each rank, for weak scaling; default: the config's batch_size"
    )
    scaling.add_argument("--global", dest="whole", metavar="N", help="of all, for strong scaling; default: the same")
    scaling.add_argument("--if-step-ms", type=float, metavar="MS", help="what would be exposed if a step took so long?")
    scaling.add_argument(
        "--simulate", action="append", default=[], metavar="WORLD", help="predict nodes=4,gpus=8,bandwidth=50, in GB/s"
    )
    scaling.add_argument("-o", "--output", metavar="FILE", help="JSON with all figures")


# Commands. What they need is imported here, so that --help and errors in arguments come at once.


def _train(args: Args, console: Console) -> int:
    from convnet.train.start import train

    def body(backend: Any, control: Any) -> int:
        options = {"resume": args.resume, "explain": args.explain, "control": control}
        return train(args.config, args.overrides, backend, console, **options)

    return _on_ranks(body, args, console, args.gpus)


def _on_ranks(body: Any, args: Args, console: Console, gpus: str | None) -> int:
    """The ranks must have the same arguments but for devices, and for configs, which are compared by their content."""
    from convnet.parallel.command import on_ranks

    apart = ("run", "words", "config", "overrides", "device", "gpus")
    asked = {name: str(value) for name, value in vars(args).items() if name not in apart}
    return on_ranks(body, args.words, asked, console, explained, device=args.device, gpus=gpus)


def _eval(args: Args, console: Console) -> int:
    def body(backend: Any, control: Any) -> int:
        return _evaluated(args, console, backend, control)

    return _on_ranks(body, args, console, args.gpus)


def _evaluated(args: Args, console: Console, backend: Any, control: Any) -> int:
    from convnet.evaluate import evaluate_checkpoint
    from convnet.parallel.devices import make_communicator
    from convnet.run import find_checkpoint, read_by_all

    found = read_by_all(lambda: find_checkpoint(args.model, console.warn, best=args.best), control)
    assert found is not None  # all ranks come here with the same arguments, and it is found or an error
    options = {"views": args.views, "control": control, "communicator": make_communicator(backend, control)}
    evaluation = evaluate_checkpoint(found, backend, args.overrides, bar=console.bar, **options)
    if args.json and control.rank == 0:
        print(json_line({"checkpoint": str(found.path), "step": found.state["step"], **evaluation.as_json()}))
    elif not args.json:
        views = f", {args.views} views" if args.views > 1 else ""
        console.say(f"{found.path}{views}\n{evaluation.text()}")
    return 0


def _predict(args: Args, console: Console) -> int:
    from convnet.predict import formatted, predict
    from convnet.run import find_checkpoint

    _check_least(args, top=1)
    found = find_checkpoint(args.model, console.warn, best=args.best)
    console.muted = True  # each image that cannot be read is an error here
    codes: list[int] = []

    def fault(message: str) -> None:
        codes.append(_fail(f"error: {message}", 1))

    for line in formatted(predict(found, open_device(args.device), args.paths, top=args.top, fault=fault), args.format):
        print(line, flush=True)
    return max(codes, default=0)


def _show(args: Args, console: Console) -> int:
    from convnet.show import draw

    target = args.output or os.path.join(args.run_folder, "overview.png")
    draw(Run(Path(args.run_folder)), Path(target), open_device(args.device), console.warn)
    console.say(target)
    return 0


def _summary(args: Args, console: Console) -> int:
    from convnet.summary import summarize

    _check_least(args, world=1)
    config = load_config(args.config, args.overrides)
    console.say(summarize(config, open_planner(args.device), explained=args.explain, world=args.world))
    return 0


def _check_data(args: Args, console: Console) -> int:
    from convnet.check_data import check_data

    _check_least(args, workers=0)
    return check_data(load_config(args.config, args.overrides), console, output=args.output, workers=args.workers)


def _check_least(args: Args, **least: int) -> None:
    for name, number in least.items():
        if getattr(args, name) < number:
            raise UserError(f"--{name}: expected {number} or more, found {getattr(args, name)}")


def _plot_samples(args: Args, console: Console) -> int:
    from convnet.samples import plot_samples

    _check_least(args, count=1, epoch=0)
    config, target = load_config(args.config, args.overrides), Path(args.output)
    plot_samples(config, target, open_device(args.device), console, count=args.count, epoch=args.epoch)
    console.say(str(target))
    return 0


def _layers(args: Args, console: Console) -> int:
    console.say(describe_layers(args.name))
    return 0


def _options(args: Args, console: Console) -> int:
    console.say(describe_options(args.section))
    return 0


def _check_grads(args: Args, console: Console) -> int:
    from convnet.graph.check_grads import Checker, report
    from convnet.inputs import normalisation
    from convnet.session import make_network

    config = load_config(args.config, args.overrides)
    network = make_network(config)
    mean, std = normalisation(config, network, planned=True)
    try:
        checker = Checker(network, seed=config.seed, mean=mean, std=std)
    except ConfigError as error:
        raise config.locate(error) from None
    checks = checker.run()
    console.say(report(checks))
    return int(any(check.wrong for check in checks))


def _import_torchvision(args: Args, console: Console) -> int:
    from convnet.formats.torchvision import import_torchvision

    files = {"config_file": args.config, "classes": args.classes, "output": args.output}
    paths = {name: Path(path) for name, path in files.items() if path}
    made = import_torchvision(Path(args.weights), args.arch, overrides=args.overrides, **paths)
    console.say(f"{made.path}: {args.weights} as a run; convnet eval {made.path}")
    return 0


def _import_cuda_convnet2(args: Args, console: Console) -> int:
    from convnet.formats.cuda_convnet2 import import_network

    notes = import_network(
        Path(args.layers), Path(args.params), Path(args.output), size=args.size, data=args.data, epochs=args.epochs
    )
    for note in notes:
        console.warn(note)
    console.say(f"{args.output}: {args.layers} as a config; convnet summary {args.output}")
    return 0


def _export(args: Args, console: Console) -> int:
    from convnet.formats.export import export, format_of
    from convnet.run import find_checkpoint

    if (args.names == "torchvision") != (args.arch is not None):
        raise UserError("--names torchvision and --arch go together")
    found = find_checkpoint(args.model, console.warn, best=args.best)
    target = Path(args.output)
    kind = format_of(target, args.format)
    if args.arch and kind == "onnx":
        raise UserError("--names torchvision is for tensors; expected --format safetensors or npz, found onnx")
    export(found, target, kind, arch=args.arch)
    console.say(f"{target}: {found.path} as {kind}")
    return 0


def _convert(args: Args, console: Console) -> int:
    from convnet.convert import convert
    from convnet.run import find_checkpoint

    found = find_checkpoint(args.model, console.warn, best=args.best)
    run = convert(found, Path(args.output), local=args.local, unshare=args.unshare)
    console.say(f"{run.path}, from {found.path}; convnet train {run.config} --resume {run.path} goes on with it")
    return 0


def _bench_data(args: Args, console: Console) -> int:
    from convnet.bench.data import bench_data, report

    if not 0 < args.seconds < math.inf:
        raise UserError(f"--seconds: expected more than 0, and a finite time, found {args.seconds:g}")
    config = load_config(args.config, args.overrides)
    for line in report(bench_data(config, open_device(args.device), seconds=args.seconds)):
        console.say(line)
    return 0


def _bench_scaling(args: Args, console: Console) -> int:
    from convnet.bench.options import links, numbers
    from convnet.bench.scaling import Asked, Bench
    from convnet.parallel.join import same

    counts = [] if args.gpus is None else numbers("--gpus", args.gpus)

    def body(backend: Any, control: Any) -> int:
        config = load_config(args.config, args.overrides)
        same(control, "config", leaves(config))
        batch = str(config.train.batch_size)
        batches, (whole, *_) = numbers("--batch", args.batch or batch), numbers("--global", args.whole or batch)
        seconds = None if args.if_step_ms is None else args.if_step_ms / 1e3
        asked = Asked(counts or sorted({1, control.size}), batches, whole, seconds, links(args.simulate))
        found = Bench(config, asked, backend, control).run()
        if control.rank == 0:
            console.say(found.text())
            if args.output:
                Path(args.output).write_text(json_line(found.as_json()) + "\n")
        return 0

    most = max(counts, default=1)
    return _on_ranks(body, args, console, str(most) if most > 1 and args.device != "cpu" else None)


def _doctor(args: Args, console: Console) -> int:
    from convnet.doctor import examine, fatal, report

    findings = examine()
    console.say(report(findings))
    return int(fatal(findings))


ON_RANKS = (_train, _eval, _bench_scaling)  # what ranks do together; all other commands run at the first alone


def _at_the_first(command: str) -> bool:
    """Whether this process is to run a command that is for one: of several ranks the first is."""
    try:
        world = from_environment(os.environ)
    except UserError:  # such variables stop what ranks do together
        return True
    if world.rank == 1:
        others = f"the others of {world.size} ({world.source}) do nothing"
        _fail(f"warning: convnet {command} runs at rank 0 alone; {others}", 0)
    return world.rank == 0


def _fail(message: str, code: int) -> int:
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:  # nobody is there to read it
        silence(sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
