#!/bin/bash
# Llama 3.1 70B with Megatron-LM on 32 nodes of 8 GPUs: what docs/how-to/import-config.md reads.
torchrun --nproc-per-node 8 --nnodes 32 pretrain_gpt.py \
    --num-layers 80 \
    --hidden-size 8192 \
    --ffn-hidden-size 28672 \
    --num-attention-heads 64 \
    --group-query-attention \
    --num-query-groups 8 \
    --swiglu \
    --normalization RMSNorm \
    --disable-bias-linear \
    --untie-embeddings-and-output-weights \
    --position-embedding-type rope \
    --seq-length 8192 \
    --max-position-embeddings 8192 \
    --tensor-model-parallel-size 8 \
    --pipeline-model-parallel-size 4 \
    --num-layers-per-virtual-pipeline-stage 5 \
    --sequence-parallel \
    --use-distributed-optimizer \
    --micro-batch-size 1 \
    --global-batch-size 512 \
    --train-iters 100000 \
    --bf16 \
    --vocab-size 128256 \
    --tokenizer-type NullTokenizer
