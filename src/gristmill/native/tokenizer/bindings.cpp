// The Python face of the tokenizer core: gristmill._tokenizer (types in _tokenizer.pyi).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "build.h"
#include "train_bpe.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using gristmill::Codec;
using gristmill::CodecOptions;
using gristmill::IdBuffer;
using gristmill::PieceKind;
using gristmill::Pieces;
using gristmill::Splitter;
using gristmill::TextPair;
using gristmill::kNone;
using Ids = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;

// UTF-8 of a str (CPython caches it in the object) or the bytes of a bytes; lives as long as the object.
std::string_view view(nb::handle object, const char* what, size_t index) {
  if (PyBytes_Check(object.ptr())) {
    return {PyBytes_AS_STRING(object.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(object.ptr()))};
  }
  if (PyUnicode_Check(object.ptr())) {
    Py_ssize_t size;
    const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (data == nullptr) throw nb::python_error();
    return {data, static_cast<size_t>(size)};
  }
  throw std::invalid_argument(std::string(what) + " " + std::to_string(index) + " is neither str nor bytes");
}

// Strings as files hold them: a list of str or bytes, or (buffer uint8, starts int64, ends int64) of one buffer. Calls
// begin(how many), then each(i, view) with views that live as long as the Python object.
template <class Begin, class Each>
void for_views(nb::handle strings, const char* what, const Begin& begin, const Each& each) {
  if (PyList_Check(strings.ptr())) {
    const nb::list list = nb::borrow<nb::list>(strings);
    begin(list.size());
    for (size_t i = 0; i < list.size(); ++i) each(i, view(list[i], what, i));
    return;
  }
  using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  using Places = nb::ndarray<const int64_t, nb::ndim<1>, nb::device::cpu>;
  const auto [buffer, starts, ends] = nb::cast<std::tuple<Bytes, Places, Places>>(strings);
  if (starts.size() != ends.size()) throw std::invalid_argument(std::string(what) + ": starts and ends differ in number");
  begin(starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t start = starts(i), end = ends(i);
    if (start < 0 || end < start || static_cast<uint64_t>(end) > buffer.size()) {
      throw std::invalid_argument(std::string(what) + " " + std::to_string(i) + " lies outside of its buffer");
    }
    each(i, std::string_view(reinterpret_cast<const char*>(buffer.data()) + start, static_cast<size_t>(end - start)));
  }
}

Pieces make_pieces(nb::handle texts, const nb::bytes& kinds) {
  Pieces pieces;
  for_views(
      texts, "token", [&](size_t n) { pieces.texts.reserve(n); },
      [&](size_t, std::string_view text) { pieces.texts.push_back(text); });
  const char* kind = kinds.c_str();
  pieces.kinds.reserve(kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) pieces.kinds.push_back(static_cast<PieceKind>(kind[i]));
  return pieces;
}

TextPair split_merge(std::string_view text, size_t index) {
  const size_t space = text.find(' ', 1);
  if (text.empty() || space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    throw std::invalid_argument("merge " + std::to_string(index) + " is not two tokens with a space between them");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

// Strings "left right" as make_views takes them, or a list of lists or tuples of the two.
std::vector<TextPair> make_merges(nb::handle merges) {
  std::vector<TextPair> pairs;
  if (PyList_Check(merges.ptr()) && PyList_GET_SIZE(merges.ptr()) > 0 &&
      !PyUnicode_Check(PyList_GET_ITEM(merges.ptr(), 0)) && !PyBytes_Check(PyList_GET_ITEM(merges.ptr(), 0))) {
    const nb::list list = nb::borrow<nb::list>(merges);
    pairs.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const nb::handle item = list[i];
      if (!(PyList_Check(item.ptr()) || PyTuple_Check(item.ptr())) || nb::len(item) != 2) {
        throw std::invalid_argument("merge " + std::to_string(i) + " is not a pair of tokens");
      }
      // The list or tuple keeps its strings, so the views outlive these handles.
      pairs.emplace_back(view(nb::object(item[0]), "merge", i), view(nb::object(item[1]), "merge", i));
    }
    return pairs;
  }
  for_views(
      merges, "merge", [&](size_t n) { pairs.reserve(n); },
      [&](size_t i, std::string_view text) { pairs.push_back(split_merge(text, i)); });
  return pairs;
}

CodecOptions make_options(Splitter splitter, bool initial_bytes, bool whole_word_first, bool marks_spaces,
                          bool space_first, bool space_after_phrase, int64_t unknown) {
  CodecOptions options;
  options.splitter = splitter;
  options.initial_bytes = initial_bytes;
  options.whole_word_first = whole_word_first;
  options.marks_spaces = marks_spaces;
  options.space_first = space_first;
  options.space_after_phrase = space_after_phrase;
  if (unknown >= 0 && unknown < kNone) options.unknown = static_cast<uint32_t>(unknown);
  return options;
}

Ids take(IdBuffer& buffer) {
  const size_t n = buffer.size();
  int32_t* data = buffer.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  return Ids(data, {n}, owner);
}

Ids encode(Codec& codec, const nb::str& text, bool with_special, bool at_start) {
  const std::string_view utf8 = view(text, "text", 0);
  IdBuffer buffer;
  {
    nb::gil_scoped_release release;
    codec.encode(utf8, with_special, at_start, buffer);
  }
  return take(buffer);
}

Ids encode_words(Codec& codec, const nb::list& words) {
  std::vector<std::string_view> views;
  views.reserve(words.size());
  for (size_t i = 0; i < words.size(); ++i) views.push_back(view(words[i], "word", i));
  IdBuffer buffer;
  buffer.reserve_more(views.size());
  {
    nb::gil_scoped_release release;
    codec.encode_words(views, buffer);
  }
  return take(buffer);
}

std::string_view bytes_of(const Codec& codec, int64_t id) {
  if (id < 0 || static_cast<uint64_t>(id) >= codec.n_ids()) {
    throw std::invalid_argument("token id " + std::to_string(id) + " is not in 0 .. " +
                                std::to_string(codec.n_ids() - 1));
  }
  return codec.bytes_of(static_cast<uint32_t>(id));
}

nb::bytes decode(const Codec& codec, const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text.append(bytes_of(codec, id));
  return nb::bytes(text.data(), text.size());
}

// A codec, built while other threads of Python go on.
template <class Build, class... Args>
std::unique_ptr<Codec> built(Build build, const Args&... parts) {
  nb::gil_scoped_release release;
  return build(parts...);
}

// (start, end, id) of each added token, in bytes of the text's UTF-8.
nb::list find_phrases(const Codec& codec, const nb::str& text, bool with_special) {
  nb::list all;
  for (const gristmill::Found& found : codec.find_phrases(view(text, "text", 0), with_special)) {
    all.append(nb::make_tuple(found.start, found.end, found.id));
  }
  return all;
}

using gristmill::BpeTrainer;
using gristmill::PieceCharacter;
using gristmill::WordCounts;

void count_words(WordCounts& words, const nb::str& text) {
  const std::string_view utf8 = view(text, "text", 0);
  nb::gil_scoped_release release;
  words.add(utf8);
}

nb::list list_characters(const WordCounts& words) {
  nb::list all;
  for (const auto& [code_point, count] : words.count_characters()) all.append(nb::make_tuple(code_point, count));
  return all;
}

nb::list list_words(const WordCounts& words) {
  nb::list all;
  for (uint32_t i = 0; i < words.n_words(); ++i) {
    const std::string_view word = words.word(i);
    all.append(nb::make_tuple(nb::str(word.data(), word.size()), words.count(i)));
  }
  return all;
}

std::unique_ptr<BpeTrainer> make_trainer(const WordCounts& words,
                                         const std::vector<std::tuple<uint32_t, int16_t, bool>>& characters,
                                         uint32_t max_characters) {
  std::vector<PieceCharacter> all;
  all.reserve(characters.size());
  for (const auto& [code_point, script, stays_alone] : characters) all.push_back({code_point, script, stays_alone});
  nb::gil_scoped_release release;
  return std::make_unique<BpeTrainer>(words, all, max_characters);
}

nb::list list_pieces(const BpeTrainer& trainer) {
  nb::list all;
  for (const std::string& piece : trainer.pieces()) all.append(nb::str(piece.data(), piece.size()));
  return all;
}

}  // namespace

NB_MODULE(_tokenizer, m) {
  nb::set_leak_warnings(false);  // as in _kernels
  m.doc() = "Text to token ids and back, natively. Made by gristmill.tokenizer; see there.";

  nb::enum_<Splitter>(m, "Splitter")
      .value("NONE", Splitter::kNone)
      .value("GPT2", Splitter::kGpt2)
      .value("LLAMA3", Splitter::kLlama3)
      .value("QWEN2", Splitter::kQwen2)
      .value("O200K", Splitter::kO200k)
      .value("NEIGHBOURS", Splitter::kNeighbours);

  nb::class_<Codec>(m, "Codec")
      .def_static(
          "byte_level",
          [](nb::handle texts, const nb::bytes& kinds, nb::handle merges, Splitter splitter,
             bool whole_word_first) {
            const CodecOptions options =
                make_options(splitter, true, whole_word_first, false, false, false, -1);
            return built(gristmill::build_byte_level, make_pieces(texts, kinds), make_merges(merges), options);
          },
          "texts"_a, "kinds"_a, "merges"_a, "splitter"_a, "whole_word_first"_a)
      .def_static(
          "ranked",
          [](nb::handle texts, const nb::bytes& kinds, Splitter splitter) {
            const CodecOptions options = make_options(splitter, true, true, false, false, false, -1);
            return built(gristmill::build_ranked, make_pieces(texts, kinds), options);
          },
          "texts"_a, "kinds"_a, "splitter"_a)
      .def_static(
          "scored",
          [](nb::handle texts, const nb::bytes& kinds, const std::vector<float>& scores, bool space_first,
             bool space_after_phrase, int64_t unknown) {
            const CodecOptions options = make_options(Splitter::kNeighbours, false, false, true, space_first,
                                                      space_after_phrase, unknown);
            return built(gristmill::build_scored, make_pieces(texts, kinds), scores, options);
          },
          "texts"_a, "kinds"_a, "scores"_a, "space_first"_a, "space_after_phrase"_a, "unknown"_a)
      .def_static(
          "char_level",
          [](nb::handle texts, const nb::bytes& kinds, nb::handle merges, bool space_first,
             bool space_after_phrase, bool space_unless_there, int64_t unknown) {
            CodecOptions options = make_options(Splitter::kNeighbours, false, false, true, space_first,
                                                      space_after_phrase, unknown);
            options.space_unless_there = space_unless_there;
            return built(gristmill::build_char_level, make_pieces(texts, kinds), make_merges(merges), options);
          },
          "texts"_a, "kinds"_a, "merges"_a, "space_first"_a, "space_after_phrase"_a,
          "space_unless_there"_a, "unknown"_a)
      .def(
          "add_phrase",
          [](Codec& codec, const nb::str& text, int64_t id, int flags) {
            bytes_of(codec, id);
            codec.add_phrase(view(text, "added token", 0), static_cast<uint32_t>(id), static_cast<uint8_t>(flags));
          },
          "text"_a, "id"_a, "flags"_a)
      .def_prop_ro("n_ids", &Codec::n_ids)
      .def("encode", &encode, "text"_a, "with_special"_a, "at_start"_a)
      .def("encode_words", &encode_words, "words"_a)
      .def("find_phrases", &find_phrases, "text"_a, "with_special"_a)
      .def("decode", &decode, "ids"_a)
      .def(
          "token_bytes",
          [](const Codec& codec, int64_t id) {
            const std::string_view bytes = bytes_of(codec, id);
            return nb::bytes(bytes.data(), bytes.size());
          },
          "id"_a);

  nb::class_<WordCounts>(m, "WordCounts")
      .def(nb::init<>())
      .def("add", &count_words, "text"_a)
      .def("absorb", &WordCounts::absorb, "other"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("n_words", &WordCounts::n_words)
      .def_prop_ro("n_bytes", &WordCounts::n_bytes)
      .def("characters", &list_characters)
      .def("words", &list_words);

  nb::class_<BpeTrainer>(m, "BpeTrainer")
      .def_static("make", &make_trainer, "words"_a, "characters"_a, "max_characters"_a)
      .def("add_pieces", &BpeTrainer::add_pieces, "n"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("pieces", &list_pieces);
}
