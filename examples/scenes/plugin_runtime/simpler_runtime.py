"""simpler (hw-native-sys) as a runtime of scenes: OPTEST_PLUGINS=simpler_runtime, with this folder on PYTHONPATH.

It is written against simpler's commit 18edd2db. Nothing of simpler is imported before a scene needs it.
"""

from optest.scenes import ArgDirection
from optest.scenes.runtimes import BaseRuntime, ordinal, register_runtime
from optest.settings.platforms import Platform, register_platform
from optest.spec import Fault, Reason


class SimplerRuntime(BaseRuntime):
    """Level 2: an orchestration and its kernels on one chip, or in its simulation."""

    platforms = ("a2a3sim", "a2a3", "a5sim", "a5")
    config = {"block_dim": 1, "aicpu_thread_num": 3}
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
        if level != 2:
            raise Fault(Reason.BAD_CASE, f"this plug-in runs scenes of level 2, not {level}")
        from simpler.task_interface import ChipCallable
        from simpler_setup import KernelCompiler

        compiler = KernelCompiler(platform=platform)
        orchestration = callable["orchestration"]
        try:
            binary = compiler.compile_orchestration(self.name, orchestration["source"])
            children = [(each["func_id"], self._core(compiler, each, platform)) for each in callable["incores"]]
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
        from simpler.task_interface import ChipWorker
        from simpler_setup import RuntimeBuilder

        made = RuntimeBuilder(platform=platform).get_binaries(self.name, build=rebuild)
        worker = ChipWorker()
        paths = (made.host_path, made.aicpu_path, made.aicore_path, made.sim_context_path)
        worker.init(*(str(each) if each else "" for each in paths))
        worker.set_device(ordinal(platform, device_ids[0]))
        return SimplerWorker(worker, self.config)


class SimplerWorker:
    def __init__(self, worker, config):
        self._worker, self._config = worker, config

    def run(self, program, args, options):
        import torch
        from simpler.task_interface import ChipCallConfig, ChipStorageTaskArgs, make_tensor_arg, scalar_to_uint64

        given = ChipStorageTaskArgs()
        for name in args.tensor_names():  # the same memory, so that outputs are written in place
            given.add_tensor(make_tensor_arg(torch.from_numpy(getattr(args, name))))
        for name in args.scalar_names():
            given.add_scalar(scalar_to_uint64(getattr(args, name)))
        config = ChipCallConfig()
        for key, value in {**self._config, **options.config}.items():
            setattr(config, key, value)
        config.enable_profiling = options.recording.profiles
        config.enable_dump_tensor = options.recording.dumps
        self._worker.run(program, given, config=config)

    def close(self):
        self._worker.finalize()


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
