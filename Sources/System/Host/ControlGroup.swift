/// The limits of the control groups (cgroups) that this process is in: version 2, and the controllers of version 1.
///
/// The limits of the ancestors of a group apply, too. Inside a container, the kernel may report the path that the group
/// has on the host. If that path does not exist in the container, the limits of the container are at the mounted root.
package struct ControlGroup {
  private let root: String
  /// The path of this process's group, by controller. The key for version 2 is empty.
  private var paths: [String: String] = [:]

  /// - Parameters:
  ///   - root: the directory in which the hierarchies are mounted.
  ///   - membership: the file that lists this process's path in each hierarchy (cgroups(7)).
  package init(root: String = "/sys/fs/cgroup", membership: String = "/proc/self/cgroup") {
    self.root = root
    for line in (SystemFile.read(membership) ?? "").split(separator: "\n") {
      let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
      guard fields.count == 3 else { continue }
      // Version 1 may mount several controllers together: `4:cpu,cpuacct:/path`.
      for controller in fields[1].split(separator: ",", omittingEmptySubsequences: false) {
        paths[String(controller)] = String(fields[2])
      }
    }
  }

  /// Processors that this process may keep busy; nil without a limit.
  package var processors: Double? {
    let unified = values(of: "cpu.max").compactMap { Self.processors(max: $0) }
    let periods = values(of: "cpu.cfs_period_us", controller: "cpu")
    let legacy = zip(values(of: "cpu.cfs_quota_us", controller: "cpu"), periods).compactMap {
      Self.processors(max: "\($0) \($1)")
    }
    return (unified + legacy).min()
  }

  /// Above this many bytes of memory, the kernel kills a process of the group; nil without a limit.
  package var memoryBytes: Int? {
    let limits = values(of: "memory.max") + values(of: "memory.limit_in_bytes", controller: "memory")
    return limits.compactMap { Int($0) }.filter { (1..<Self.noLimit).contains($0) }.min()
  }

  /// A larger number of bytes means that there is no limit: version 1 reports 'no limit' as the largest number of
  /// pages. No machine has this much memory.
  private static let noLimit = 1 << 60

  /// `"max 100000"` is no limit; `"150000 100000"` is 1.5 processors.
  private static func processors(max text: String) -> Double? {
    let words = text.split(separator: " ")
    guard words.count == 2, let quota = Double(words[0]), let period = Double(words[1]), quota > 0, period > 0 else {
      return nil
    }
    return quota / period
  }

  /// The first line of the file `name` in each group that has it, from this process's group to the root.
  ///
  /// - Parameter controller: the controller in version 1; nil for version 2.
  private func values(of name: String, controller: String? = nil) -> [String] {
    let root = controller.map { "\(self.root)/\($0)" } ?? self.root
    var path = paths[controller ?? ""] ?? ""
    var values: [String] = []
    while true {
      if let text = SystemFile.read("\(root)\(path)/\(name)") { values.append(String(text.prefix { $0 != "\n" })) }
      guard let slash = path.lastIndex(of: "/") else { return values }
      path = String(path[..<slash])
    }
  }
}
