"""The processing class of trainers that know only texts and ids."""
