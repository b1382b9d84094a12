"""Tokenizers: every text can be written and read back, and no text can end a document."""

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from raymega.data.bpe import EOD_TOKEN, train_bpe
from raymega.data.tokenizer import PIECE_CHARS, ByteTokenizer, load_tokenizer, tokenizer_of_json
from raymega.errors import ConfigError, DataError
from tests.data.corpora import prepare_here

CORPORA = Path(__file__).parents[2] / "raymega" / "corpora"


def plays(number: int) -> list[str]:
    return pq.read_table(CORPORA / "shakespeare.parquet")["text"].slice(0, number).to_pylist()


@given(text=st.text())
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("spec", ["byte", "shakespeare-2k"])
def test_every_text_comes_back_from_its_ids(spec: str, text: str) -> None:
    tokenizer = load_tokenizer(spec)
    [ids] = tokenizer.encode([text])
    assert tokenizer.decode(ids.tolist()) == text
    assert ids.dtype == np.int32
    assert not (ids == tokenizer.eod_id).any()


def test_the_built_in_bpe_has_two_thousand_ids_and_ends_documents_with_the_first() -> None:
    tokenizer = load_tokenizer("shakespeare-2k")
    assert (tokenizer.vocab_size, tokenizer.eod_id) == (2048, 0)


def test_a_text_that_spells_the_end_of_a_document_does_not_end_it() -> None:
    tokenizer = load_tokenizer("shakespeare-2k")
    [ids] = tokenizer.encode([f"to be{EOD_TOKEN}or not"])
    assert tokenizer.eod_id not in ids
    assert tokenizer.decode(ids.tolist()) == f"to be{EOD_TOKEN}or not"


def test_decoding_leaves_out_ends_of_documents() -> None:
    assert ByteTokenizer().decode([104, 105, 256]) == "hi"
    assert load_tokenizer("shakespeare-2k").decode([0]) == ""


@given(
    gaps=st.lists(
        st.sampled_from(["\n\n", "\n\n\n", "\n \n", " \n\n  ", "\n\n\t", "\n", "\r\n\r\n"]), min_size=2, max_size=6
    )
)
@settings(max_examples=15, deadline=None)
def test_encoding_in_pieces_gives_the_ids_of_the_whole_text(gaps: list[str]) -> None:
    tokenizer = load_tokenizer("shakespeare-2k")
    text = "".join("word, 'tis 42 " * (PIECE_CHARS // 16) + gap for gap in gaps) + "end"
    [ids] = tokenizer.encode([text])
    assert ids.tolist() == tokenizer.core.encode(text, add_special_tokens=False).ids


def test_a_pattern_that_joins_newlines_is_encoded_whole() -> None:
    core = tokenizers.Tokenizer.from_str(load_tokenizer("shakespeare-2k").json_text)
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert not tokenizer_of_json(core.to_str(), name="x").splits_at_paragraphs


def test_training_the_same_texts_twice_gives_the_same_file() -> None:
    texts = plays(1)
    assert train_bpe(texts, vocab_size=300) == train_bpe(iter(texts), vocab_size=300)


@pytest.mark.slow
def test_the_built_in_bpe_is_what_training_on_the_corpus_gives() -> None:
    assert train_bpe(plays(38), vocab_size=2048) == (CORPORA / "shakespeare-2k.json").read_text()


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="Ask for 257 or more"):
        train_bpe(["a"], vocab_size=200)
    with pytest.raises(ConfigError, match=r"a BPE of 99999999999 ids is beyond any that is trained\. Ask for 1048576"):
        train_bpe(["a"], vocab_size=99_999_999_999)


def test_a_fingerprint_tells_what_the_file_says_not_how_it_is_laid_out(tmp_path: Path) -> None:
    text = train_bpe(plays(1), vocab_size=300)
    compact = tmp_path / "tokenizer.json"
    compact.write_text(json.dumps(json.loads(text)))
    same, other = load_tokenizer(str(compact)), tokenizer_of_json(train_bpe(plays(1), vocab_size=301), name="y")
    assert same.fingerprint == tokenizer_of_json(text, name="x").fingerprint != other.fingerprint


def test_any_tokenizer_file_is_read_by_the_path_of_it_or_of_its_directory(tmp_path: Path) -> None:
    core = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.add_special_tokens(["</s>"])
    core.save(str(tmp_path / "tokenizer.json"))
    for spec in (tmp_path, tmp_path / "tokenizer.json"):
        tokenizer = load_tokenizer(str(spec))
        assert (tokenizer.vocab_size, tokenizer.eod_id) == (4, 3)
        assert tokenizer.encode(["b a c"])[0].tolist() == [1, 0, 2]


def test_a_tokenizer_crosses_processes_and_stays_the_same() -> None:
    tokenizer = load_tokenizer("shakespeare-2k")
    copy = pickle.loads(pickle.dumps(tokenizer))
    text = f"Now is the winter {EOD_TOKEN}"
    assert copy.encode([text])[0].tolist() == tokenizer.encode([text])[0].tolist()


def test_an_unknown_tokenizer_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="Give byte, shakespeare-2k, or the path"):
        load_tokenizer("nope")


def test_a_file_that_is_no_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    for content in ("{", "[]", '{"model": 3}'):
        (tmp_path / "t.json").write_text(content)
        with pytest.raises(DataError, match=r"t\.json is not a tokenizer\.json"):
            load_tokenizer(str(tmp_path / "t.json"))


def test_a_tokenizer_without_an_end_of_document_asks_for_one(tmp_path: Path) -> None:
    core = tokenizers.Tokenizer(models.WordLevel({"a": 0, "STOP": 1}, unk_token="a"))
    core.save(str(tmp_path / "t.json"))
    with pytest.raises(ConfigError, match="--eod-token"):
        load_tokenizer(str(tmp_path / "t.json"))
    assert load_tokenizer(str(tmp_path / "t.json"), eod_token="STOP").eod_id == 1


def test_a_prepared_directory_names_the_tokenizer_it_was_prepared_with(tmp_path: Path) -> None:
    core = tokenizers.Tokenizer(models.WordLevel({"a": 0, "STOP": 1}, unk_token="a"))
    core.save(str(tmp_path / "t.json"))
    (tmp_path / "a.txt").write_text("a a a")
    chosen = load_tokenizer(str(tmp_path / "t.json"), eod_token="STOP")
    for name, tokenizer in (("own", chosen), ("bytes", ByteTokenizer())):
        prepare_here([tmp_path / "a.txt"], tmp_path / name, tokenizer=tokenizer, seq_len=1)
        again = load_tokenizer(str(tmp_path / name))
        assert (again.fingerprint, again.eod_id) == (tokenizer.fingerprint, tokenizer.eod_id)
