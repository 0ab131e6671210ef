"""Hugging Face config.json to `specs.Model`: offline, with a report of what was understood, assumed and ignored.

`reading.read` takes the mapping, `reading.open_model` a file or a checkpoint's folder; `files` knows a configuration from the
other files of a checkpoint, and costs nothing to import. A model type is read by a row of one of the tables
(`decoders`, `mixtures`, `latents`, `hybrids`, `encoders`, `images`, `multimodal`, `diffusers`); what none of them reads is refused
by name with its reason. Keys left out take the class defaults of the library (`defaults`), each said. Counts are held against
the library's own classes (`tests/oracle/configs.json`). Leaves out: weights, adapters, code beside a checkpoint.
"""
