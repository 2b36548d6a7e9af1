"""simpler (hw-native-sys) as a runtime of scenes: OPTEST_PLUGINS=simpler_runtime, with this folder on PYTHONPATH.

It is written against simpler's commit 18edd2db. Nothing of simpler is imported before a scene needs it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from optest.scenes import ArgDirection
from optest.scenes.runtimes import BaseRuntime, ordinal, register_runtime
from optest.scenes.runtimes.callables import required
from optest.scenes.runtimes.cpp.compiler import kept
from optest.settings.platforms import Platform, register_platform
from optest.spec import Fault, Reason


class SimplerRuntime(BaseRuntime):
    """Level 2: an orchestration and its kernels on one chip, or in its simulation. Level 3: a Python function that
    submits work to several of them."""

    platforms = ("a2a3sim", "a2a3", "a5sim", "a5")
    config = {"block_dim": 1, "aicpu_thread_num": 3}
    copies = True  # a kernel writes to memory of the chip
    log_variable = "PTO_LOG_LEVEL"  # what --log-level sets
    profile_variable = "SIMPLER_PERF_OUTPUT_DIR"  # where simpler writes with --enable-profiling

    def lack(self, platform):
        try:  # names that optest.scenes.compat does not stand in for
            from simpler.task_interface import ChipCallable  # noqa: F401
            from simpler_setup import KernelCompiler  # noqa: F401
        except ImportError:
            return "simpler is unavailable: install it from its repository (hw-native-sys/simpler)"
        return None

    def build(self, callable, platform, *, level):
        if level == 2:
            return self._chip_callable(callable, platform)
        chips, subs = {}, {}
        for each in required(callable, "callables", Sequence):
            if "orchestration" in each:
                chips[each["name"]] = self._chip_callable(each, platform)
                chips[f"{each['name']}_sig"] = _directions(each["orchestration"].get("signature", ()))
            else:
                subs[each["name"]] = each["callable"]
        return callable["orchestration"], chips, subs

    def _chip_callable(self, stated, platform):
        from simpler.task_interface import ChipCallable

        compiler = _compiler(platform)
        orchestration = stated["orchestration"]
        try:
            binary = compiler.compile_orchestration(self.name, orchestration["source"])
            children = [(each["func_id"], self._core(compiler, each, platform)) for each in stated["incores"]]
        except RuntimeError as error:  # simpler's word for a compiler that failed
            raise Fault(Reason.COMPILE, str(error)) from error
        return ChipCallable.build(
            signature=_directions(orchestration.get("signature", ())),
            func_name=orchestration["function_name"],
            binary=binary,
            children=children,
            config_name=orchestration.get("config_name", ""),
        )

    def _core(self, compiler, kernel, platform):
        from simpler.task_interface import CoreCallable
        from simpler_setup import ensure_pto_isa_root, extract_text_section

        binary = compiler.compile_incore(
            kernel["source"],
            core_type=kernel["core_type"],
            pto_isa_root=ensure_pto_isa_root(),
            extra_include_dirs=compiler.get_orchestration_include_dirs(self.name),
        )
        if not platform.endswith("sim"):
            binary = extract_text_section(binary)
        return CoreCallable.build(signature=_directions(kernel.get("signature", ())), binary=binary)

    def open(self, platform, device_ids, *, rebuild=False):
        return SimplerWorker(self, platform, [ordinal(platform, each) for each in device_ids], rebuild)


class SimplerWorker:
    def __init__(self, runtime, platform, devices, rebuild):
        self._runtime, self._platform, self._devices, self._rebuild = runtime, platform, devices, rebuild
        self._chip = None

    def run(self, program, args, options):
        import torch
        from simpler.task_interface import ChipCallConfig

        from optest.torch.tensors import from_torch, to_torch

        cpu = torch.device("cpu")
        arrays = {name: getattr(args, name) for name in args.tensor_names()}
        # processes that simpler forks for level 3 write to the same memory
        tensors = {name: to_torch(array, cpu).clone().share_memory_() for name, array in arrays.items()}
        config = ChipCallConfig()
        for key, default in self._runtime.config.items():
            setattr(config, key, options.config.get(key, default))
        config.enable_profiling = options.recording.profiles
        config.enable_dump_tensor = options.recording.dumps
        given = args.clone(tensors)
        if options.level == 2:
            self._run_on_chip(program, given, config)
        else:
            self._run_on_chips(program, given, config, options.config)
        for name, array in arrays.items():
            array[...] = from_torch(tensors[name])

    def _run_on_chip(self, program, args, config):
        from simpler.task_interface import ChipStorageTaskArgs, ChipWorker, make_tensor_arg, scalar_to_uint64
        from simpler_setup import RuntimeBuilder

        if self._chip is None:
            built = RuntimeBuilder(platform=self._platform).get_binaries(self._runtime.name, build=self._rebuild)
            paths = (built.host_path, built.aicpu_path, built.aicore_path, built.sim_context_path)
            self._chip = ChipWorker()
            self._chip.init(*(str(each) if each else "" for each in paths))
            self._chip.set_device(self._devices[0])
        given = ChipStorageTaskArgs()
        for name in args.tensor_names():
            given.add_tensor(make_tensor_arg(getattr(args, name)))
        for name in args.scalar_names():
            given.add_scalar(scalar_to_uint64(getattr(args, name)))
        self._chip.run(program, given, config=config)
        if config.enable_profiling:  # simpler's collector cannot be initialised twice
            self.close()

    def _run_on_chips(self, program, args, config, stated):
        """A new set of processes for each run: simpler forks them, and they know the memory that is there then."""
        from simpler.worker import Worker
        from simpler_setup import CallableNamespace

        orchestration, chips, subs = program
        worker = Worker(
            level=3,
            device_ids=self._devices,
            num_sub_workers=stated.get("num_sub_workers", 0),
            platform=self._platform,
            runtime=self._runtime.name,
            build=self._rebuild,
        )
        names = CallableNamespace({**chips, **{name: worker.register(each) for name, each in subs.items()}})
        worker.init()
        try:
            worker.run(lambda submits, _args, _config: orchestration(submits, names, args, config))
        finally:
            worker.close()

    def close(self):
        if self._chip is not None:
            self._chip.finalize()
            self._chip = None


def _compiler(platform):
    """simpler's compiler. The objects for a simulation stay on disk: every process of a run builds the program."""
    from simpler_setup import KernelCompiler

    class KeepingCompiler(KernelCompiler):
        def _compile_to_bytes(self, cmd, output_path, *more, **named):
            def build(stem):
                # -MF has the rules of one source only, an orchestration has two; GCC ends the file's name at a space
                words = ["env", f"DEPENDENCIES_OUTPUT={os.path.relpath(stem)}.d", *cmd]
                binary = super(KeepingCompiler, self)._compile_to_bytes(words, output_path, *more, **named)
                Path(f"{stem}.so").write_bytes(binary)

            arguments = [each for each in cmd[1:] if each not in ("-o", output_path)]
            binary = kept((cmd[0],), arguments, Path(cmd[-1]), build).read_bytes()
            Path(output_path).unlink(missing_ok=True)  # simpler creates an empty one first
            return binary

    return (KeepingCompiler if platform.endswith("sim") else KernelCompiler)(platform=platform)


def _directions(signature):
    """optest's directions as simpler's, which have the same names."""
    from simpler.task_interface import ArgDirection as Theirs

    return [getattr(Theirs, each.name) if isinstance(each, ArgDirection) else each for each in signature]


def register():
    """What optest calls when it has imported this module."""
    for name in ("host_build_graph", "aicpu_build_graph", "tensormap_and_ringbuffer"):
        register_runtime(name, type(name, (SimplerRuntime,), {"name": name}))
    for chip in ("a2a3", "a5"):
        register_platform(
            Platform(
                name=chip,
                one_runtime_per_process=True,
                device_mask="ASCEND_RT_VISIBLE_DEVICES",
                probe=("npu-smi", "info", "-t", "health", "-i", "{device}"),
                reset=("npu-smi", "set", "-t", "reset", "-i", "{device}", "-c", "0"),
            ),
            replace=True,
        )
