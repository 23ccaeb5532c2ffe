import CLinux
import Glibc

/// The number of processors that this process may keep busy.
package enum ProcessorCount {
  /// Processors in the affinity mask, limited by the control group's quota (rounded up: half a processor still needs a loop).
  package static var usable: Int {
    let affinity = Int(clinux_available_processors())
    guard let quota = groupQuota() else { return affinity }
    return max(1, min(affinity, Int(quota.rounded(.up))))
  }

  /// Processors granted by `cpu.max` of this control group or an ancestor (cgroup v2), or by v1's quota files. nil means no
  /// limit.
  static func groupQuota(root: String = "/sys/fs/cgroup", membership: String = "/proc/self/cgroup") -> Double? {
    var tightest: Double?
    func consider(_ value: Double?) {
      if let value { tightest = min(tightest ?? value, value) }
    }
    var path = unifiedPath(in: SystemFile.read(membership) ?? "")
    while true {
      consider(parse(cpuMax: SystemFile.read(root + path + "/cpu.max") ?? ""))
      guard !path.isEmpty, path != "/", let slash = path.lastIndex(of: "/") else { break }
      path = String(path[..<slash])
    }
    if let quota = SystemFile.read(root + "/cpu/cpu.cfs_quota_us"),
      let period = SystemFile.read(root + "/cpu/cpu.cfs_period_us")
    {
      consider(parse(cpuMax: trimmed(quota) + " " + trimmed(period)))
    }
    return tightest
  }

  /// `"max 100000"` is no limit; `"150000 100000"` is 1.5 processors.
  static func parse(cpuMax text: String) -> Double? {
    let words = text.split(whereSeparator: { $0 == " " || $0 == "\n" })
    guard words.count == 2, let quota = Double(words[0]), let period = Double(words[1]), quota > 0, period > 0 else {
      return nil
    }
    return quota / period
  }

  /// The path after `0::` in `/proc/self/cgroup`.
  private static func unifiedPath(in text: String) -> String {
    for line in text.split(separator: "\n") where line.hasPrefix("0::") { return String(line.dropFirst(3)) }
    return ""
  }

  private static func trimmed(_ text: String) -> String { String(text.prefix { $0 != "\n" }) }
}
