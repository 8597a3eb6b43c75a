"""Prompts with images for vLLM servers, and the front between them and trainers that send ids alone."""
