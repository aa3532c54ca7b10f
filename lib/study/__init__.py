"""What the chapters need to study attention: data, training, plots, explorers, exercises. The library never imports it."""
