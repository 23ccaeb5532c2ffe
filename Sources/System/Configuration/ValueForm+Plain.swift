import ByteStreams
import Logging
import TLSEngine

/// Texts, numbers, sizes, durations and words.

extension ValueForm where Value == String {
  static var text: ValueForm { .scalar("a text", read: { $0 }, show: PrintableText.quoted) }
}

extension ValueForm where Value == String? {
  /// A text, or nothing.
  static var optionalText: ValueForm {
    .scalar("a text", read: { .some($0.isEmpty ? nil : $0) }, show: { PrintableText.quoted($0 ?? "") })
  }
}

extension ValueForm where Value == [String] {
  static var texts: ValueForm { .list(read: { $0 }, show: { $0 }) }
}

extension ValueForm where Value == Bool {
  static var flag: ValueForm {
    .scalar("true or false", words: ["true", "false"], read: { Bool($0) }, show: { $0 ? "true" : "false" })
  }
}

extension ValueForm where Value == Int {
  static func count(_ range: ClosedRange<Int>) -> ValueForm {
    .scalar(
      "a number from \(range.lowerBound) to \(range.upperBound)",
      read: { Int($0).flatMap { range.contains($0) ? $0 : nil } }, show: { String($0) })
  }

  /// A count; `auto` is 0.
  static func automaticCount(_ range: ClosedRange<Int>) -> ValueForm {
    let numbers = max(1, range.lowerBound)...range.upperBound
    return .scalar(
      "'auto' or a number from \(numbers.lowerBound) to \(numbers.upperBound)",
      read: { $0 == "auto" ? 0 : Int($0).flatMap { numbers.contains($0) ? $0 : nil } },
      show: { $0 == 0 ? "auto" : String($0) })
  }

  /// Bytes.
  static func size(_ range: ClosedRange<Int>) -> ValueForm {
    .scalar(
      "a size from \(ValueText.size(range.lowerBound)) to \(ValueText.size(range.upperBound)), such as 64KiB or 16MiB",
      read: { ValueText.parseSize($0).flatMap { range.contains($0) ? $0 : nil } }, show: ValueText.size)
  }
}

extension ValueForm where Value == Int? {
  /// A count, or nil, written as 0.
  static func countOrNone(_ range: ClosedRange<Int>) -> ValueForm {
    .scalar(
      "a number from \(range.lowerBound) to \(range.upperBound)",
      read: { text in Int(text).flatMap { range.contains($0) ? .some($0 == 0 ? nil : $0) : nil } },
      show: { String($0 ?? 0) })
  }
}

extension ValueForm where Value == Double {
  /// A number that need not be whole.
  static func fraction(_ range: ClosedRange<Double>) -> ValueForm {
    .scalar(
      "a number from \(range.lowerBound) to \(range.upperBound)",
      read: { Double($0).flatMap { range.contains($0) ? $0 : nil } }, show: { String($0) })
  }
}

extension ValueForm where Value == TimeSpan {
  static func duration(_ range: ClosedRange<TimeSpan>) -> ValueForm {
    .scalar(
      durationExpectation(range), read: { TimeSpan($0).flatMap { range.contains($0) ? $0 : nil } }, show: \.text)
  }
}

extension ValueForm where Value == TimeSpan? {
  /// A duration, or nil, written as 0s.
  static func durationOrNone(_ range: ClosedRange<TimeSpan>) -> ValueForm {
    .scalar(
      durationExpectation(range),
      read: { text in TimeSpan(text).flatMap { range.contains($0) ? .some($0 == .zero ? nil : $0) : nil } },
      show: { ($0 ?? .zero).text })
  }
}

private func durationExpectation(_ range: ClosedRange<TimeSpan>) -> String {
  "a duration from \(range.lowerBound.text) to \(range.upperBound.text), such as 500ms, 20s or 10m"
}

extension ValueForm where Value: RawRepresentable & CaseIterable & Equatable, Value.RawValue == String {
  /// One of the words of an enumeration.
  static var choice: ValueForm { .words(Value.allCases.map { ($0.rawValue, $0) }) }
}

extension ValueForm where Value == LogLevel {
  static var logLevel: ValueForm { .words(LogLevel.allCases.map { ($0.name, $0) }) }
}

extension ValueForm where Value == TLSVersion {
  static var tlsVersion: ValueForm { .words(TLSVersion.allCases.map { ($0.number, $0) }) }
}

extension ValueForm where Value == TLSClientSettings.Verification {
  static var verification: ValueForm {
    .scalar(
      "true or false", words: ["true", "false"], read: { Bool($0).map { $0 ? .full : .offForTestsOnly } },
      show: { $0 == .full ? "true" : "false" })
  }
}
