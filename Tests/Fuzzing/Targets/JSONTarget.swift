import ByteStreams
import JSONCodec

/// Compares the JSON validator with a simple parser. Also writes any text as a JSON string, and compares it with the
/// parsed string.
enum JSONTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    try check(input, bytes)
    guard ReferenceUTF8.isValid(bytes) else { return }

    var written = ByteQueue()
    written.append(jsonString: input)
    var reader = ReferenceJSON(written.copyBytes(), maximumDepth: JSONValidator.maximumDepth)
    try require(reader.document() && reader.lastString == bytes, "the text differs after writing it as a JSON string")
    try require(JSONValidator.isValid(written.bytes), "the written string is refused")
  }

  private static func check(_ input: Span<UInt8>, _ bytes: [UInt8]) throws(Finding) {
    var reference = ReferenceJSON(bytes, maximumDepth: JSONValidator.maximumDepth)
    let isValid = reference.document()
    let traits: JSONTraits
    do throws(JSONError) {
      traits = try JSONValidator.validate(input)
    } catch {
      try require(!isValid, "refused, although it is JSON: \(error)")
      try require((0...input.count).contains(error.offset), "the offset of the error is outside of the text: \(error)")
      return
    }
    try require(isValid, "accepted, although it is not JSON")
    try require(
      traits.hasUnpairedSurrogates == reference.hasUnpairedSurrogates, "unpaired surrogates are reported differently")
  }
}
