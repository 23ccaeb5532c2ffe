/// Numbers in words, for people.
enum Words {
  /// `0.4 s`, `12 s`, `3 min`, `2 h`, `4 d`.
  static func age(_ seconds: Double) -> String {
    switch seconds {
    case ..<10: "\(decimal(max(0, seconds))) s"
    case ..<120: "\(Int(seconds)) s"
    case ..<7200: "\(Int(seconds / 60)) min"
    case ..<172_800: "\(Int(seconds / 3600)) h"
    default: "\(Int(min(seconds, 1e12) / 86_400)) d"
    }
  }

  /// `0.4 ms`, `12 ms`, `1.3 s`.
  static func shortTime(_ seconds: Double) -> String {
    seconds < 1 ? "\(seconds < 0.01 ? decimal(seconds * 1000) : "\(Int(seconds * 1000))") ms" : "\(decimal(seconds)) s"
  }

  /// `, only topics 'orders.*' and 'prices'`; empty if all pushes are included.
  static func filter(_ topics: [String]) -> String {
    guard let last = topics.last else { return "" }
    let others = topics.dropLast().map { "'\($0)'" }.joined(separator: ", ")
    return others.isEmpty ? ", only topic '\(last)'" : ", only topics \(others) and '\(last)'"
  }

  /// `512 B`, `1.5 KiB`, `20 MiB`.
  static func bytes(_ count: Int) -> String {
    guard count >= 1024 else { return "\(count) B" }
    var value = Double(count)
    var unit = ""
    for next in ["KiB", "MiB", "GiB", "TiB"] where value >= 1024 {
      value /= 1024
      unit = next
    }
    return "\(value < 10 ? decimal(value) : "\(Int(value))") \(unit)"
  }

  /// `1 message`, `2 messages`.
  static func count(_ count: Int, _ one: String, _ many: String? = nil) -> String {
    "\(grouped(count)) \(count == 1 ? one : many ?? one + "s")"
  }

  /// `1,234,567`.
  static func grouped(_ number: Int) -> String {
    let digits = String(number.magnitude)
    var result = number < 0 ? "-" : ""
    for (index, digit) in digits.enumerated() {
      if index > 0, (digits.count - index) % 3 == 0 { result += "," }
      result.append(digit)
    }
    return result
  }

  /// Returns a number with one digit after the point, unless this digit is 0.
  private static func decimal(_ value: Double) -> String {
    let tenths = Int((min(value, 1e15) * 10).rounded())
    return tenths % 10 == 0 ? "\(tenths / 10)" : "\(tenths / 10).\(tenths % 10)"
  }
}
