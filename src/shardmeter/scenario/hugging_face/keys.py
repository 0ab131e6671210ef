"""Keys of config.json that change no size and no count, by group; and which unknown ones could."""

from __future__ import annotations

import re

GROUPS: tuple[tuple[str, str], ...] = (
    ("positions", (r"(?!qk_rope_head_dim).*rope.*|rotary.*|partial_rotary_factor|.*_theta|original_max_position.*|use_mrope|mrope_.*"
                  r"|position_embedding_type|alibi_bias_max|use_dynamic_ntk|use_logn_attn|longrope.*|.*yarn.*"
                  r"|position_ids_start|rope_interleave|use_position_embedding")),
    ("tokens", (r".*token_id|.*token_ids|.*token_index|.*_token|image_token.*|video_token.*|.*_id_begin|.*_id_end|.*_tokenizer.*"
               r"|tokenizer_.*|n_special|predict_special_tokens|chat_template.*|model_max_length|mask_index|unk_index|pad_index"
               r"|.*_pad_.*|truncation.*|task_specific_params|prefix|suffix_.*|begin_suppress.*|suppress_tokens")),
    ("regularisation", (r".*dropout.*|.*_drop|.*pdrop|.*drop_path.*|layerdrop|.*layerdrop|embd_pdrop|stochastic_depth.*"
                       r"|use_sub_layer_norm_dropout|.*_dropping|jitter_.*|router_jitter_noise|input_jitter_noise")),
    ("initialisation", (r".*initializer.*|init_.*|.*_init|.*_init_.*|initializer_cutoff_factor|rescale_.*|time_step_.*|dt_.*"
                       r"|mamba_dt_.*|linear_a_log.*|linear_dt_.*|.*_std|reinit_.*")),
    ("activation and precision", (r"hidden_act|hidden_activation|activation_function|activation|.*_act|.*act_fn|act_.*|swiglu_.*"
                 r"|torch_dtype|dtype|.*_dtype|bf16|fp16|fp32|.*_in_fp32|.*_fp32.*|upcast.*|reorder_and_upcast.*|use_bfloat16"
                 r"|mamba_ssm_.*|softmax_in_fp32|params_dtype|attention_softmax.*|activation_situation")),
    ("scales and caps", (r".*_multiplier|.*softcap.*|.*_scaling|.*_scale|scale_.*|.*_scalar|.*_scaling_factor|.*_factor"
                        r"|residual_.*|normalize_embedding.*|.*logit.*|.*eps|.*epsilon|clip_qkv|qk_clip.*|dim_model_base"
                        r"|scale_emb|scale_depth|mup_.*|use_mup.*|apply_query_key_layer_scaling|attn_temperature_.*|floor_scale"
                        r"|query_pre_attn_scalar|embedding_multiplier|logits_.*|min_.*_limit|.*_limit|norm_after_.*")),
    ("routing and losses", (r"router_.*|.*aux_loss.*|.*loss.*|norm_topk_prob|topk_.*|n_group|scoring_func|.*routed_scaling.*"
                           r"|moe_router.*|output_router_logits|use_routing_.*|seq_aux|aux_.*|capacity_factor|moe_aux.*"
                           r"|moe_norm_min|moe_eval.*|moe_train.*|moe_min_capacity|moe_token_dropping|expert_selection_fn"
                           r"|use_expert_bias|score_func.*|route_.*|router_bias_update.*|enable_moe_fp32_combine"
                           r"|moe_implementation|moe_.*_loss.*|ep_size|moe_shared_expert_overlap|shared_expert_combination_strategy")),
    ("generation", (r"use_cache|.*cache.*|max_length|min_length|num_beams|do_sample|temperature|top_k|top_p|repetition_penalty|"
                   r"length_penalty|early_stopping|no_repeat_ngram.*|num_return_sequences|max_new_tokens|forced_.*|bad_words.*|"
                   r"output_(attentions|hidden_states|scores)|return_dict.*|typical_p|diversity_penalty|num_logits_to_keep|"
                   r"encoder_no_repeat.*|exponential_decay.*|remove_invalid_values|is_decoder|use_return_dict|decoder_start.*")),
    ("windows not in use", (r"max_window_layers|use_sliding_window|sliding_window.*|_sliding_window.*|layer_switch|full_attn_mod|use_swa"
                           r"|order_of_interleaved_layers|attn_type_list|attention_layers|spatial_patch_size|interpolate_factor"
                           r"|initial_context_length|n_ctx|global_attn_every_n")),
    ("said by the class", (r"normalize_before|add_final_layer_norm|static_position_embeddings|add_bias_logits|skip_bias_add.*"
                          r"|apply_residual_connection_post_layernorm|masked_softmax_fusion|offset_alibi|use_rmsnorm|fuse_.*"
                          r"|use_gated_activation|use_(embedding_sharing|parallel_(block|embedding))|norm_before_gate|rms_norm"
                          r"|parallel_attn_mlp_res|mamba_inner_layernorms|qk_norm_type|use_qk_norm|attn_output_gate|output_gate_type|output_past"
                          r"|mtp_.*|use_mtp|multi_token_pred.*|moe_(gate|capacity|use_aux_free|drop_.*|random_.*|layer_num_.*)"
                          r"|pad_vocab_size_multiple|embd_layer|architecture|is_composition|class_num|pool_type|num_image_tokens|ignore_index|org_vocab_size|verbose")),
    ("images", (r"dynamic_image_size|(min|max)_dynamic_patch|use_thumbnail|template|use_(backbone|llm)_lora|force_image_size"
               r"|image_grid_pinpoints|image_aspect_ratio|use_image_newline_parameter|image_seq_length|num_media_embeds|vit_.*")),
    ("labels and tasks", (r"id2label|label2id|finetuning_task|problem_type|num_labels|summary_.*|classifier_.*|pooler_.*"
                         r"|sentence_.*|.*pooling.*|auxiliary_.*|semantic_.*|cls_token_.*|add_pooling_layer|gradient_.*")),
    ("library and kernels", (r"_name_or_path|name_or_path|architectures|auto_map|transformers_version|_.*|model_type|pretraining_tp|"
                r"is_encoder_decoder|tie_encoder_decoder|pruned_heads|chunk_size_feed_forward|attn_implementation|use_flash.*|"
                r".*flash_attn.*|use_.*kernels?|use_mambapy|use_associative_scan|torchscript|use_fused.*|fused_.*|slow_but_exact|"
                r"quantization.*|compression_config|onnx.*|unsloth.*|use_parallel_.*|unpad_inputs|sparse_.*"
                r"|reference_compile|sdpa|kernel_.*|license|model_name|version|attn_impl|deterministic.*|cross_attention_hidden_size"
                r"|.*_config_version|train_.*|language|languages|reserved_.*|hf_.*|use_stable_embedding|bias_dropout_fusion")),
)  # fmt: skip
"""(group, pattern of the whole key)."""
KEPT = ("windows not in use", "said by the class", "images")
"""Groups whose keys matter to the models that ask for them: their class defaults are kept."""
_SHAPES = (
    r"size|dim\b|dim_|_dim|num|layer|head|rank|width|depth|expert|bias|norm|proj|conv|mlp|ffn|tie|kernel|patch|channel|"
    r"block|pattern|embed|hidden|vocab|group|state|window|adapter|lora|config"
)


def group(key: str) -> str:
    """The group of a key that does not matter; empty for one that may."""
    return next((name for name, pattern in GROUPS if re.fullmatch(pattern, key)), "")


def could_change_shapes(key: str, value: object) -> bool:
    """Whether a key that nothing here knows sounds as if it changed a size: by its name, and by a value that says something."""
    if value is None or value is False or value in (0, [], {}, "", "none"):
        return False
    return bool(re.search(_SHAPES, key.lower()))
