"""FSDP is given a mixed precision policy and computes in fp32."""

AFTER = "torch.distributed.fsdp.fully_sharded_data_parallel"


def sabotage(module):
    init = module.FullyShardedDataParallel.__init__

    def deaf(self, *arguments, **keywords):
        init(self, *arguments, **{**keywords, "mixed_precision": None})

    module.FullyShardedDataParallel.__init__ = deaf
