import ByteStreams

/// UTF-8 in pieces: fails in the very piece with the first wrong byte, and judges the whole as Swift's String does.
///
/// Input: a byte that chooses the cuts, then the text.
enum UTF8Target {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let bytes = reader.rest
    let copy = [UInt8](copying: bytes)
    let fault = ReferenceUTF8.firstFault(in: copy)
    let isValid = String(validating: copy, as: UTF8.self) != nil
    try require(UTF8StreamValidator.isValid(bytes) == isValid, "whole, it is judged otherwise than by String")
    try require(ReferenceUTF8.isValid(copy) == isValid, "the reference judges otherwise than String")

    var validator = UTF8StreamValidator()
    for piece in cuts.pieces(of: bytes.count) {
      let isGood = validator.append(bytes.extracting(piece))
      let shouldBeGood = fault.map { $0 >= piece.upperBound } ?? true
      try require(isGood == shouldBeGood, "the first wrong byte is \(fault ?? -1), and \(piece) is judged \(isGood)")
      guard isGood else { return }
    }
    try require(validator.isComplete == isValid, "after all pieces, it is judged otherwise than whole")
  }
}
