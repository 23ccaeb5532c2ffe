import Glibc
import Testing

@testable import Host

@Suite struct ControlGroupTests {
  @Test func theTightestLimitOfAGroupAndItsAncestorsApplies() throws {
    let files = try Files(["0::/a/b"])
    try files.write("a/memory.max", "268435456\n")
    try files.write("a/b/memory.max", "max\n")
    try files.write("a/cpu.max", "150000 100000\n")
    try files.write("a/b/cpu.max", "max 100000\n")
    #expect(files.group.memoryBytes == 256 << 20)
    #expect(files.group.processors == 1.5)
    try files.write("a/b/memory.max", "1000\n")
    #expect(files.group.memoryBytes == 1_000)
  }

  @Test func controllersOfVersionOneHavePathsOfTheirOwn() throws {
    let files = try Files(["5:cpu,cpuacct:/one", "4:memory:/two", "0::/three"])
    try files.write("memory/two/memory.limit_in_bytes", "1000\n")
    try files.write("memory/memory.limit_in_bytes", "9223372036854771712\n")
    try files.write("cpu/one/cpu.cfs_quota_us", "50000\n")
    try files.write("cpu/one/cpu.cfs_period_us", "100000\n")
    try files.write("cpu/cpu.cfs_quota_us", "-1\n")
    try files.write("cpu/cpu.cfs_period_us", "100000\n")
    #expect(files.group.memoryBytes == 1_000)
    #expect(files.group.processors == 0.5)
  }

  /// The kernel reports the path on the host, but in a container only the container's own group is mounted.
  @Test(arguments: ["memory.max", "memory/memory.limit_in_bytes"])
  func aContainerHasTheLimitOfTheMountedRoot(name: String) throws {
    let files = try Files(["4:memory:/outside/of/it", "0::/outside/of/it"])
    try files.write(name, "1000\n")
    #expect(files.group.memoryBytes == 1_000)
  }

  @Test(arguments: ["max", "9223372036854771712", "9223372036854775807", "", "x", "-1", "0", "99999999999999999999"])
  func aFileWithoutALimitIsNoLimit(text: String) throws {
    let files = try Files(["0::/"])
    try files.write("memory.max", text)
    try files.write("cpu.max", "\(text) 100000")
    #expect(files.group.memoryBytes == nil)
    if text.count < 10 { #expect(files.group.processors == nil) }
  }

  @Test func withoutControlGroupsThereIsNoLimit() {
    let group = ControlGroup(root: "/nowhere", membership: "/nowhere/cgroup")
    #expect(group.memoryBytes == nil && group.processors == nil)
  }
}

/// Hierarchies of control groups in a folder of the test.
private final class Files {
  private let root: String
  private var made: [String] = []

  init(_ membership: [String]) throws {
    var template = Array("/tmp/cgroup-test-XXXXXX".utf8CString)
    root = String(cString: try #require(mkdtemp(&template)))
    try write("membership", membership.joined(separator: "\n") + "\n")
  }

  deinit {
    for path in made.reversed() { remove(path) }
    rmdir(root)
  }

  var group: ControlGroup { ControlGroup(root: root, membership: root + "/membership") }

  func write(_ name: String, _ text: String) throws {
    var folder = root
    for part in name.split(separator: "/").dropLast() {
      folder += "/\(part)"
      if mkdir(folder, 0o700) == 0 { made.append(folder) }
    }
    let path = "\(root)/\(name)"
    made.append(path)
    let file = try #require(fopen(path, "w"))
    fputs(text, file)
    fclose(file)
  }
}
