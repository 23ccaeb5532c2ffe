import ByteStreams
import JSONCodec

/// The validator of JSON against a simple reader; and any text, written as a JSON string, against what that reader makes of it.
enum JSONTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    try judge(input, bytes)
    guard ReferenceUTF8.isValid(bytes) else { return }

    var written = ByteQueue()
    written.append(jsonString: input)
    var reader = ReferenceJSON(written.copyBytes(), maximumDepth: JSONValidator.maximumDepth)
    try require(reader.document() && reader.lastString == bytes, "it is another text after being written as a string")
    try require(JSONValidator.isValid(written.bytes), "the string that was written is refused")
  }

  private static func judge(_ input: Span<UInt8>, _ bytes: [UInt8]) throws(Finding) {
    var reference = ReferenceJSON(bytes, maximumDepth: JSONValidator.maximumDepth)
    let isValid = reference.document()
    let traits: JSONTraits
    do throws(JSONError) {
      traits = try JSONValidator.validate(input)
    } catch {
      try require(!isValid, "refused, and it is JSON: \(error)")
      try require((0...input.count).contains(error.offset), "the fault lies outside of the text: \(error)")
      return
    }
    try require(isValid, "accepted, and it is no JSON")
    try require(
      traits.hasUnpairedSurrogates == reference.hasUnpairedSurrogates, "unpaired surrogates are told otherwise")
  }
}
