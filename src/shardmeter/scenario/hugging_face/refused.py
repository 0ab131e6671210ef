"""Model types that are not read, and why: what they have that no field of a model says. The reason is of the architecture, not of
this program: a reader is written where the layers can be."""

from __future__ import annotations

import re

REASONS: tuple[tuple[str, str], ...] = (
    ((r"whisper|wav2vec2.*|hubert|wavlm|unispeech.*|speech.*|seamless.*|moonshine.*|parakeet.*|.*_asr|bark|encodec|mimi|dac|vits|"
     r"musicgen.*|clap.*|audio.*|univnet|xcodec.*|fastspeech.*|kyutai.*|moshi.*|csm.*|voxtral.*|granite_speech.*|canary.*|"
     r"qwen2_audio.*|sew.*|data2vec-audio|pop2piano|clvp.*|dia|dia_.*|higgs_audio.*|vibevoice.*|neucodec|omniasr.*|lasr.*|glmasr.*"
     r"|musicflamingo|timesformer_audio"), "models of speech and sound (convolutions over a spectrum, codecs)"),
    (r"qwen2_5_omni.*|qwen3_omni.*|phi4_multimodal.*|gemma3n|gemma3n_(audio|vision)|cosmos3_omni|nemotron_h_omni|minicpmo",
     "models that hear as well as see"),
    ((r"resnet|regnet|convnext.*|efficientnet|mobilenet.*|levit|bit|van|hgnet.*|cvt|poolformer|focalnet|textnet|vgg|"
     r"mobilevit.*|swiftformer|efficientformer|timm_(wrapper|backbone)|dinov3_convnext"), "convolutional networks"),
    (r"swin.*|donut-swin|maskformer-swin|pvt.*|segformer|hiera|dinat|nat|glpn|mgp-str|beit|data2vec-vision",
     "vision models of windows, pyramids or biases by distance"),
    ((r".*detr.*|yolos|owl.*|sam.*|mask2former|maskformer|oneformer|dpt|depth_.*|zoedepth|vitpose.*|vitmatte|upernet|"
     r"superpoint|superglue|lightglue|grounding-dino|mm-grounding-dino|eomt.*|edgetam.*|clipseg.*|groupvit.*|vitdet|d_fine|"
     r"table-transformer|rt_.*|deimv2|omdet-turbo"), "models of detection, segmentation or depth"),
    (r"rwkv.*", "RWKV's recurrence"), (r"xlstm", "xLSTM's recurrence"), (r"recurrent_gemma|griffin", "gated linear recurrences"),
    (r"retnet", "retention"), (r"hyena.*|striped_hyena", "long convolutions"),
    (r"lfm2.*|lfm3.*", "layers of gated short convolutions"),
    (r"zamba.*", "stacks of recurrences that share their attention"),
    (r"falcon_h1|hymba", "attention and a recurrence side by side in one layer"),
    (r"kimi_linear|kimi_k3|olmo_hybrid|bailing_hybrid", "linear attention with gates of its own (Kimi's delta attention and its like)"),
    (r"minimax|minimax_text_01|minimax_m1|MiniMaxText01", "lightning attention"),
    ((r"deepseek_v32|deepseek_v4.*|glm_moe_dsa|glm5.*|longcat_flash_lite|minimax_m3.*|qwen4_exp.*|hy_v4.*"
     r"|dots3.*|axk2"), "sparse attention with an indexer"),
    (r"longcat_flash.*", "two attentions a layer beside the experts, and experts that compute nothing"),
    (r"gemma3n_text|gemma3n.*", "per-layer embeddings and alternating updates"),
    (r"gemma4.*|embedding_gemma2.*|diffusion_gemma.*", "layers whose heads are of unlike width"),
    (r"mimo_v2.*|step3p.*|laguna", "windowed and full layers with unlike key-value heads or widths"),
    (r"cohere2_moe", "dense layers in front whose window, width and number follow rules of their own"),
    (r"axk1", "a norm after experts, and none after dense layers"),
    (r"zaya", "attention whose queries and keys pass a convolution in time"),
    (r"inkling.*", "attention by distance, with windowed layers of their own heads"),
    (r"muse_.*|mistral_large4.*", "an image tower or projector of another make"),
    (r"mllama.*", "text layers that attend over an image"),
    (r"idefics2.*|idefics|idefics_.*|blip.*|instructblip.*|perceiver|evolla|kosmos.*|flamingo|git|git_.*|aria",
     "a perceiver or query transformer between image and text"),
    ((r"aya_vision|cohere2_vision|cohere_compass|glm4v.*|glm46v|glm_ocr.*|lfm.*_vl|molmo2.*|ovis2.*|perception_lm|fast_vlm|"
     r"deepseek_vl.*|got_ocr2.*|janus.*|chameleon.*|emu3.*|florence.*|hunyuan_vl.*|ernie4_5_vl.*|video_llama.*|minicpmv.*|"
     r"kimi_vl|kimi_k25.*|phi3_v|granite4_vision.*|vipllava|llava_next_video|video_llava|paddleocr_vl.*|molmo|"
     r"deepseek_ocr.*|nvlm_d|moondream.*|qwen_vl|cogvlm.*|minicpm_ocr.*|shieldgemma2|colpali|colqwen2|siglip2.*"),
     "an image tower or projector of another make"),
    (r"llava_.+|bunny.*|mgm.*|.*_llava|tinyllava.*", "an image tower that is named, not described: the form of LLaVA's own code"),
    (r"clip_text_model|siglip_text_model|.*_text_model", "one tower of a pair, without the other"),
    (r"phi3small", "blocks of sparse attention"),
    (r"bitnet", "norms inside attention and MLP, and ternary weights"),
    (r"deberta.*|mpnet|nezha", "attention by distance in an encoder"),
    (r"albert", "layers that share one set of weights"),
    (r"openelm|OpenELM|decilm|nemotron-nas|nemotron_nas", "layers of unlike widths"),
    (r"switch_transformers|nllb-moe", "encoder-decoders with routed experts"),
    ((r"longt5|led|longformer|big_?bird.*|reformer|nystromformer|funnel|convbert|squeezebert|fnet|xlnet|transfo-xl|ctrl|canine|"
     r"yoso|mra|rembert|mobilebert|ibert|luke|lxmert|visual_bert|bridgetower.*|flava.*|vilt|tapas|layoutlm.*|markuplm|roformer"),
     "an encoder of another make (sparse, factored or convolved)"),
    (r"diffllama", "differential attention"), (r"persimmon|fuyu", "norms of queries and keys with biases"),
    (r"jetmoe", "experts of attention"),
    (r"encoder-decoder|vision-encoder-decoder|speech-encoder-decoder|rag|dpr|trocr|vision-text-dual-encoder|nougat",
     "two models joined by hand"),
    (r"graphormer|.*gnn.*|esm.*|evo.*|time.*|patchts.*|informer|autoformer|decision_transformer", "models of other data than text"),
    (r"vit_mae|videomae|vivit|timesformer|vjepa2|imagegpt|vit_hybrid|dinov3_vit|ijepa_.*", "an image model of another make"),
    (r"altclip.*|chinese_clip.*|align.*|xclip.*|videoprism.*|tipsv2.*|aimv2.*|pe_.*", "two towers of another make"),
)  # fmt: skip
"""(pattern of the whole model type, what it has)."""

CLASSES: tuple[tuple[str, str], ...] = (
    (r".*UNet.*", "U-Nets: convolutions and attention by turns"), (r"Autoencoder.*|VQModel|.*VAE.*", "autoencoders"),
    (r".*Scheduler", "a schedule of noise has no parameters"),
    (r".*ControlNet.*|.*Adapter.*", "a network beside another"),
    (r".*Pipeline", "a pipeline of several models: name the config.json of its transformer, as in transformer/config.json"),
    (r".*Transformer.*", "diffusion transformers with a text as condition (cross-attention, joint attention)"),
    (r".*", "this class of diffusers"),
)  # fmt: skip
"""(pattern of a class of diffusers, what it is)."""


def reason(kind: str) -> str:
    """What a model type has that is not modelled; empty for one that is not in the list."""
    return next((says for pattern, says in REASONS if re.fullmatch(pattern, kind)), "")


def class_reason(name: str) -> str:
    """What a class of diffusers is."""
    return next(says for pattern, says in CLASSES if re.fullmatch(pattern, name))
