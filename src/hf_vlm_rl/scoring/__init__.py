"""Models that give rows a number, for trainers that want one: value, reward and critic."""
