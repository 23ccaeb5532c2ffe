import ByteStreams

/// UTF-8 in pieces: the validator fails at the piece with the first invalid byte, and agrees with Swift's String.
///
/// Input: a byte for the pieces, then the text.
enum UTF8Target {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let bytes = reader.rest
    let copy = [UInt8](copying: bytes)
    let fault = ReferenceUTF8.firstFault(in: copy)
    let isValid = String(validating: copy, as: UTF8.self) != nil
    try require(UTF8StreamValidator.isValid(bytes) == isValid, "in one piece, the result differs from String's")
    try require(ReferenceUTF8.isValid(copy) == isValid, "the reference's result differs from String's")

    var validator = UTF8StreamValidator()
    for piece in cuts.pieces(of: bytes.count) {
      let isGood = validator.append(bytes.extracting(piece))
      let shouldBeGood = fault.map { $0 >= piece.upperBound } ?? true
      try require(
        isGood == shouldBeGood, "the first invalid byte is \(fault ?? -1), but the result for \(piece) is \(isGood)")
      guard isGood else { return }
    }
    try require(validator.isComplete == isValid, "after all pieces, the result differs from that of one piece")
  }
}
