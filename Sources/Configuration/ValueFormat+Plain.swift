import ByteStreams
import Logging
import TLSEngine

/// Texts, numbers, sizes, durations and words.

extension ValueFormat where Value == String {
  static var text: ValueFormat { .scalar("text", read: { $0 }, format: PrintableText.quoted) }

  /// The path of a file.
  static var path: ValueFormat {
    var format = text
    format.isPath = true
    return format
  }
}

extension ValueFormat where Value == String? {
  /// A text. An empty text means that the setting is not set (nil).
  static var optionalText: ValueFormat {
    .scalar("text", read: { .some($0.isEmpty ? nil : $0) }, format: { PrintableText.quoted($0 ?? "") })
  }

  /// The path of a file. An empty text means that there is no file (nil).
  static var optionalPath: ValueFormat {
    var format = optionalText
    format.isPath = true
    return format
  }
}

extension ValueFormat where Value == [String] {
  static var texts: ValueFormat { .list(read: { $0 }, format: { $0 }) }
}

extension ValueFormat where Value == Bool {
  static var boolean: ValueFormat {
    .scalar(
      "true or false", words: ["true", "false"], schema: .boolean, read: { Bool($0) }, format: { $0 ? "true" : "false" }
    )
  }
}

extension ValueFormat where Value == Int {
  static func count(_ range: ClosedRange<Int>) -> ValueFormat {
    .scalar(
      "a number from \(range.lowerBound) to \(range.upperBound)", schema: .integer(range),
      read: { Int($0).flatMap { range.contains($0) ? $0 : nil } }, format: { String($0) })
  }

  /// A count; `auto` is 0.
  static func automaticCount(_ range: ClosedRange<Int>) -> ValueFormat {
    let numbers = max(1, range.lowerBound)...range.upperBound
    return .scalar(
      "'auto' or a number from \(numbers.lowerBound) to \(numbers.upperBound)",
      schema: .integer(numbers, orWord: "auto"),
      read: { $0 == "auto" ? 0 : Int($0).flatMap { numbers.contains($0) ? $0 : nil } },
      format: { $0 == 0 ? "auto" : String($0) })
  }

  /// Bytes.
  static func size(_ range: ClosedRange<Int>) -> ValueFormat {
    .scalar(
      "a size from \(ByteSize.format(range.lowerBound)) to \(ByteSize.format(range.upperBound)), such as 64KiB or 16MiB",
      schema: .size(range),
      read: { ByteSize.parse($0).flatMap { range.contains($0) ? $0 : nil } }, format: ByteSize.format)
  }
}

extension ValueFormat where Value == Int? {
  /// A count, or nil, written as 0.
  static func countOrNone(_ range: ClosedRange<Int>) -> ValueFormat {
    .scalar(
      "a number from \(range.lowerBound) to \(range.upperBound)", schema: .integer(range),
      read: { text in Int(text).flatMap { range.contains($0) ? .some($0 == 0 ? nil : $0) : nil } },
      format: { String($0 ?? 0) })
  }
}

extension ValueFormat where Value == Double {
  /// A number that need not be whole.
  static func fraction(_ range: ClosedRange<Double>) -> ValueFormat {
    .scalar(
      "a number from \(range.lowerBound) to \(range.upperBound)", schema: .number(range),
      read: { Double($0).flatMap { range.contains($0) ? $0 : nil } }, format: { String($0) })
  }
}

extension ValueFormat where Value == TimeSpan {
  static func duration(_ range: ClosedRange<TimeSpan>) -> ValueFormat {
    .scalar(
      durationExpectation(range), schema: .duration(range),
      read: { TimeSpan($0).flatMap { range.contains($0) ? $0 : nil } }, format: \.text)
  }
}

extension ValueFormat where Value == TimeSpan? {
  /// A duration, or nil, written as 0s.
  static func durationOrNone(_ range: ClosedRange<TimeSpan>) -> ValueFormat {
    .scalar(
      durationExpectation(range), schema: .duration(range),
      read: { text in TimeSpan(text).flatMap { range.contains($0) ? .some($0 == .zero ? nil : $0) : nil } },
      format: { ($0 ?? .zero).text })
  }
}

private func durationExpectation(_ range: ClosedRange<TimeSpan>) -> String {
  "a duration from \(range.lowerBound.text) to \(range.upperBound.text), such as 500ms, 20s or 10m"
}

extension ValueFormat where Value: RawRepresentable & CaseIterable & Equatable, Value.RawValue == String {
  /// One of the words of an enumeration.
  static var choice: ValueFormat { .words(Value.allCases.map { ($0.rawValue, $0) }) }
}

extension ValueFormat where Value == LogLevel {
  static var logLevel: ValueFormat { .words(LogLevel.allCases.map { ($0.name, $0) }) }
}

extension ValueFormat where Value == TLSVersion {
  static var tlsVersion: ValueFormat { .words(TLSVersion.allCases.map { ($0.number, $0) }) }
}

extension ValueFormat where Value == TLSClientSettings.Verification {
  static var verification: ValueFormat {
    .scalar(
      "true or false", words: ["true", "false"], schema: .boolean,
      read: { Bool($0).map { $0 ? .full : .offForTestsOnly } },
      format: { $0 == .full ? "true" : "false" })
  }
}
