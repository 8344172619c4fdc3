"""Names that vLLM 0.33.0 itself knows: a plugin may bring others."""

from __future__ import annotations


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Multi-token prediction by kinds of model; all but the first are old names of it.
MTP = _names(
    "mtp bailing_hybrid_mtp bailing_hybrid_v3_mtp deepseek_mtp dots3_note_mtp ernie_mtp "
    "exaone4_5_mtp exaone_moe_mtp gemma4_mtp glm4_moe_lite_mtp glm4_moe_mtp glm5_next_mtp "
    "glm_ocr_mtp hy_v3_mtp hy_v4_mtp inkling_mtp kimi_k3_mtp longcat_flash_mtp mimo_mtp "
    "mimo_v2_mtp minimax_m3_mtp nemotron_h_mtp pangu_ultra_moe_mtp qwen3_5_mtp qwen3_next_mtp "
    "qwen4_exp_mtp step3p5_mtp step5_mtp"
)
METHODS = (
    *_names("draft_model ngram ngram_gpu suffix custom_class eagle eagle3 dflash dspark"),
    "extract_hidden_states",
    *MTP,
)
MOE_BACKENDS = _names(
    "auto aiter aiter_mega_moe aiter_triton_mxfp4_bf16 aiter_triton_mxfp4_mxfp4 b12x "
    "batched_triton cutlass deep_gemm deep_gemm_mega_moe emulation flashinfer_b12x "
    "flashinfer_cutedsl flashinfer_cutlass flashinfer_moe_ep_cutedsl "
    "flashinfer_moe_ep_mega_deep_gemm flashinfer_trtllm flydsl hpc humming marlin rdna3 triton "
    "triton_unfused"
)
ATTENTION_BACKENDS = _names(
    "AMX_MLA B12X CPU_ATTN CPU_MLA CUSTOM CUTLASS_MLA CUTLASS_MSA FLASHINFER FLASHINFER_MLA "
    "FLASHINFER_MLA_SPARSE FLASHINFER_MLA_SPARSE_DSV4 FLASHINFER_MLA_SPARSE_DSV41 "
    "FLASHINFER_MLA_SPARSE_SM120 FLASHINFER_MLA_SPARSE_SM90 FLASHMLA FLASHMLA_MEGA_ATTN_DSV41 "
    "FLASHMLA_SPARSE FLASHMLA_SPARSE_DSV4 FLASHMLA_SPARSE_DSV41 FLASH_ATTN FLASH_ATTN_DIFFKV "
    "FLASH_ATTN_MLA FLASH_ATTN_MLA_SPARSE FLASH_ATTN_MLA_SPARSE_FA4 FLEX_ATTENTION HPC_ATTN "
    "MINIMAX_M3_SPARSE NO_ATTENTION ROCM_AITER_FA ROCM_AITER_MLA ROCM_AITER_MLA_SPARSE "
    "ROCM_AITER_TRITON_MLA ROCM_AITER_UNIFIED_ATTN ROCM_ATTN ROCM_FLASHMLA_SPARSE_DSV4 "
    "ROCM_FLASHMLA_SPARSE_DSV41 ROCM_OCTAVE ROCM_SEGMENTED_ATTN STEP5_DSA TOKENSPEED_MLA "
    "TORCH_SDPA TRITON_ATTN TRITON_ATTN_DIFFKV TRITON_FLASHINFER TRITON_FLASH_ATTN TRITON_MLA "
    "TRITON_MSA TURBOQUANT ULTRAQUANT XPU_MLA_SPARSE"
)
KV_DTYPES = _names(
    "auto bfloat16 float16 fp8 fp8_ds_mla fp8_e4m3 fp8_e5m2 fp8_inc fp8_per_token_head "
    "int4_per_token_head int8_per_token_head nvfp4 nvfp4_4over6 nvfp4_ds_mla octave_k3v3 "
    "octave_k3v3_compact octave_k3v4 turboquant_3bit_nc turboquant_4bit_nc turboquant_k3v4_nc "
    "turboquant_k8v4 ultraquant_4bit"
)
QUANTIZATION = _names(
    "auto_awq auto_gptq awq awq_marlin compressed-tensors deepseek_v4_fp8 experts_int8 "
    "fbgemm_fp8 fp8 fp8_per_block fp8_per_channel fp8_per_tensor fp_quant gpt_oss_mxfp4 gptq "
    "gptq_marlin humming inc int8_per_channel_weight_only modelopt modelopt_fp4 modelopt_mixed "
    "modelopt_mxfp8 moe_wna16 mxfp4 mxfp8 nvfp4_per_token online quark torchao"
)
LOAD_FORMATS = _names(
    "auto dummy fastsafetensors hf instanttensor ipc_cache mistral modelexpress npcache pt "
    "runai_streamer runai_streamer_sharded safetensors sharded_state tensorizer"
)
