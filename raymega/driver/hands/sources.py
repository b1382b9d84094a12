"""The streams of a run's data, as the feeder asks for them."""

from raymega.config.schema import Config
from raymega.data.open_data import open_data
from raymega.driver.hands.data_stream import BatchStream, train_stream, valid_stream
from raymega.driver.hands.feeder import Sources


def data_sources(config: Config) -> Sources:
    """Open the data of a resolved config. Raises: DataError if it cannot be trained on."""
    assert config.run.seed is not None, "a resolved config has a seed"
    data = open_data(config.data, seed=config.run.seed, vocab_size=config.model.vocab_size)
    batch_size, steps = config.training.batch_size, config.training.steps

    def train(step: int) -> BatchStream:
        return train_stream(data, batch_size=batch_size, start_step=step, stop_step=steps)

    def valid() -> BatchStream:
        return valid_stream(data, batch_size=batch_size, num_samples=config.training.eval_samples)

    return Sources(train=train, valid=valid, steps=steps)
